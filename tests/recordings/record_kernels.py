"""Run every kernel case on a real GPU and write what its first and second call allocate and free.

    PYTHONPATH=tests/recordings python tests/recordings/record_kernels.py OUT.jsonl.gz [BEGINNING..]

Each line: {"name": ..., "first": [+size, -size, ...], "second": [...]}, or {"name": ..., "error":
...}. A positive number is an allocation of that many bytes, a negative one frees such an
allocation. Only cases whose names begin with one of the others are run, where there are some.
"""

from __future__ import annotations

import gzip
import json
import sys

import torch
from kernel_cases import CASES


def events_of(run: object) -> list[int]:
    torch.cuda.memory._record_memory_history(
        enabled="all", context=None, stacks="python", max_entries=1_000_000, clear_history=True
    )
    run()  # type: ignore[operator]
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    sizes: dict[int, int] = {}
    events = []
    for entry in trace:
        if entry["action"] == "alloc":
            sizes[entry["addr"]] = entry["size"]
            events.append(entry["size"])
        elif entry["action"] == "free_completed" and entry["addr"] in sizes:
            events.append(-sizes.pop(entry["addr"]))
        elif entry["action"] == "free_completed":
            events.append(0)
    return events


def record(name: str) -> dict[str, object]:
    try:
        run = CASES[name]()
        first = events_of(run)
        second = events_of(run)
        return {"name": name, "first": first, "second": second}
    except Exception as error:
        return {"name": name, "error": f"{type(error).__name__}: {error}"[:300]}
    finally:
        torch.cuda.empty_cache()


def main() -> None:
    # handles and their workspaces exist before the first case
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    torch.nn.functional.linear(x, x, x[0]).sum().backward()
    (x @ x).sum().backward()
    with gzip.open(sys.argv[1], "wt") as file:
        header = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version(),
        }
        file.write(json.dumps(header) + "\n")
        wanted = tuple(sys.argv[2:]) or ("",)
        for name in filter(lambda name: name.startswith(wanted), CASES):
            file.write(json.dumps(record(name)) + "\n")


if __name__ == "__main__":
    main()
