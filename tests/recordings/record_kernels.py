"""Run every kernel case on a real GPU and write what its first and second call allocate and free.

    PYTHONPATH=src:tests/recordings python tests/recordings/record_kernels.py OUT.jsonl.gz [NAME..]

Each line: {"name": ..., "first": [+size, -size, ...], "second": [...]}, or {"name": ..., "error":
...}. A positive number is an allocation of that many bytes, a negative one frees such an
allocation. Only cases whose names begin with one of the others are run, where there are some.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable

import torch
from kernel_cases import CASES

from vramcast.hardware.calibration.measure import allocations_of


def events_of(run: Callable[[], object]) -> list[int]:
    def result_is_freed() -> None:
        run()

    return allocations_of(result_is_freed)


def record(name: str) -> dict[str, object]:
    try:
        run = CASES[name]()
        first, second = events_of(run), events_of(run)
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
