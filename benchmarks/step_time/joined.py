"""Pairs recorded kernels with simulated operators; fit.py reads what comes of it.

    python benchmarks/step_time/joined.py OUT.jsonl SIMULATED.jsonl RECORDED.jsonl ...

SIMULATED is of simulated.py, RECORDED of record.py --kernels; a line of each belongs together where
it has the same function and knobs. A line of OUT is [operator, dtype, flops, bytes, sizes, access,
median seconds, how often].
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from pairing import Pair, calls_of, paired

from vramcast.forecast.timing.recurrent import RECURRENT
from vramcast.tracing.work import OperatorWork


def name_of(record: dict[str, Any]) -> str:
    knobs = [f"{name}={value}" for name, value in record.get("knobs", {}).items()]
    return " ".join((record["row"], *knobs))


def pairs_of(simulated: dict[str, Any], record: dict[str, Any]) -> list[Pair]:
    works = [OperatorWork(*w[:4], tuple(w[4]), *w[5:]) for w in simulated["works"]]
    order = [works[index] for index in simulated["order"] if works[index].has_kernel]
    calls = calls_of(record)
    others = [call for call in calls if call.names[-1] not in RECURRENT]
    pairs = list(paired([work for work in order if work.operator not in RECURRENT], others))
    for name in RECURRENT:  # zeros and copies in it are works of their own
        works_of = [work for work in order if work.operator == name]
        called = [call for call in calls if call.names[-1] == name]
        if len(works_of) == len(called):
            pairs += [Pair(work, [call]) for work, call in zip(works_of, called, strict=True)]
    return pairs


def joined(pairs: list[Pair]) -> list[list[Any]]:
    """Equal ones together, whichever part of the step they were in."""
    seconds: dict[OperatorWork, list[float]] = defaultdict(list)
    for pair in pairs:
        if pair.work is not None and pair.calls and pair.seconds > 0:
            seconds[pair.work._replace(phase=0, stream=0)].append(pair.seconds)
    return [
        [*work[:5], work.access, float(f"{statistics.median(found):.4g}"), len(found)]
        for work, found in seconds.items()
    ]


def main() -> None:
    out, simulated, *recorded = map(Path, sys.argv[1:])
    steps = {line["row"]: line for line in map(json.loads, simulated.read_text().splitlines())}
    with open(out, "w") as file:
        for path in recorded:
            record = json.loads(path.read_text())
            step = steps.get(name_of(record))
            if step is None:
                print(f"not simulated: {name_of(record)}")
                continue
            pairs = pairs_of(step, record)
            alone = sum(pair.work is None for pair in pairs), sum(not p.calls for p in pairs)
            print(f"{name_of(record)}: {len(pairs)} pairs, without a partner {alone}")
            for line in joined(pairs):
                print(json.dumps(line), file=file)


if __name__ == "__main__":
    main()
