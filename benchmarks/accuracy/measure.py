"""Measure the suite on a real GPU: one fresh process a row, six steps, a JSON line each and every allocator event.

    python benchmarks/accuracy/measure.py OUT_FOLDER [ROW ...]
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

STEPS = 6


def measure(name: str, out: Path) -> None:
    import torch
    from suite import BLIND, DEVELOPMENT, HOLDOUT

    from vramcast.workload import load_function, parse_reference

    target, knobs = {**DEVELOPMENT, **HOLDOUT, **BLIND}[name]
    function = load_function(parse_reference(str(Path(__file__).parent / target)))
    torch.zeros(1, device="cuda")
    free_before, total = torch.cuda.mem_get_info()
    torch.cuda.memory._record_memory_history(max_entries=4_000_000, stacks="python", context=None)
    step = function(**knobs)
    static = torch.cuda.memory_allocated()
    seconds, marks = [], []
    first_allocated = first_reserved = 0
    for index in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        marks.append(torch.cuda.memory_stats()["allocation.all.allocated"])
        if index == 0:
            first_allocated, first_reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    stats = torch.cuda.memory_stats()
    record = {
        "name": name,
        "static_bytes": static,
        "first_allocated_bytes": first_allocated,
        "first_reserved_bytes": first_reserved,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_requested_bytes": stats["requested_bytes.all.peak"],
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "process_growth_bytes": free_before - torch.cuda.mem_get_info()[0],
        "total_bytes": total,
        "free_before_bytes": free_before,
        "num_allocations": stats["allocation.all.allocated"],
        "allocations_after_step": marks,
        "num_alloc_retries": stats["num_alloc_retries"],
        "step_seconds": sorted(seconds[2:])[len(seconds[2:]) // 2],
        "torch_version": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
    }
    events: list[int] = []
    sizes: dict[int, int] = {}
    ids: dict[int, int] = {}
    for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
        if entry["action"] == "alloc":
            ids[entry["addr"]] = len(sizes) + 1
            sizes[len(sizes) + 1] = entry["size"]
            events.append(len(sizes))
        elif entry["action"] == "free_completed" and entry["addr"] in ids:
            events.append(-ids.pop(entry["addr"]))
    with gzip.open(out / f"{name}.json.gz", "wt") as file:
        json.dump({"events": events, "sizes": list(sizes.values())}, file)
    print("RECORD " + json.dumps(record), flush=True)


def main() -> None:
    if sys.argv[1] == "--one":
        measure(sys.argv[2], Path(sys.argv[3]))
        return
    from suite import BLIND, DEVELOPMENT, HOLDOUT

    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "h200.jsonl", "a") as records:
        for name in sys.argv[2:] or [*DEVELOPMENT, *HOLDOUT, *BLIND]:
            done = subprocess.run([sys.executable, __file__, "--one", name, str(out)], capture_output=True, text=True)
            lines = [line.removeprefix("RECORD ") for line in done.stdout.splitlines() if line.startswith("RECORD ")]
            record = lines[0] if lines else json.dumps({"name": name, "error": done.stderr.strip()[-1500:]})
            records.write(record + "\n")
            records.flush()
            print(name, "ok" if lines else "FAILED", flush=True)


if __name__ == "__main__":
    main()
