"""Writes README.md from the records: answers and costs side by side. Needs no GPU.

PYTHONPATH=src python benchmarks/max_batch/table.py benchmarks/max_batch/h200-torch-2.11.jsonl
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vramcast.records.store import read_lines, write_atomically

METHODS = {
    "ours": "vramcast",
    "lightning-power": "Lightning power",
    "lightning-binsearch": "Lightning binsearch",
    "accelerate": "accelerate",
}
PEERS = tuple(METHODS)[1:]
MOST_PROBES = 3
RIGHT_OF_TEN = 0.9
INTRODUCTION = """# The largest batch under a memory cap: vramcast and other tools

The same training step, the same cap of torch's allocator, each search in a fresh process. Made by
`table.py` from the records of `run.py`: do not edit by hand.

    PYTHONPATH=src python benchmarks/max_batch/run.py --out {records} --seconds 450
    PYTHONPATH=src python benchmarks/max_batch/table.py {records}

- *true* is the largest size that ran and whose next larger one did not, ten steps each in a fresh
  process of its own.
- *vramcast* is the whole command `vramcast max-batch ... --json`: predicted without a GPU, then
  confirmed on it by the answer and the next size. That next size is its one out-of-memory error,
  and it is in a process of its own, after the answer has run.
- *Lightning* is `Tuner.scale_batch_size` with its defaults (from 2, three steps a trial; binsearch
  takes 5 % off its answer).
- *accelerate* is `find_executable_batch_size` with its defaults (from 128 down by a tenth; it never
  goes up).
- Seconds are of the whole process, imports included, with everything on disk read once before.
"""


@dataclass
class Results:
    """The records of one file, by pair in their order."""

    setup: dict[str, Any] = field(default_factory=dict)
    pairs: dict[str, dict[str, Any]] = field(default_factory=dict)
    records: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def get(self, pair: str, method: str) -> dict[str, Any]:
        return self.records.get((pair, method), {})

    def true(self, pair: str) -> int | None:
        return self.get(pair, "truth").get("answer")

    def answer(self, pair: str, method: str) -> int | None:
        return self.get(pair, method).get("answer")


def read(path: Path) -> Results:
    results = Results()
    for line in read_lines(path):
        if line["method"] == "setup":
            results.setup = line["record"]
            continue
        results.pairs.setdefault(line["pair"]["name"], line["pair"])
        results.records[line["pair"]["name"], line["method"]] = line["record"]
    return results


def page(results: Results, records_name: str) -> str:
    parts = [
        INTRODUCTION.format(records=records_name),
        _machine(results.setup),
        "## In short\n\n" + "\n".join(f"- {line}" for line in summary(results)),
        "## The answer, and how much of the true one it is",
        _markdown(["workload", "cap", "true", *METHODS.values()], _answers(results)),
        "## What it cost: seconds, trials, out-of-memory errors; x is times vramcast's seconds",
        _markdown(["workload", *METHODS.values(), "vramcast again"], _costs(results)),
        _footnotes(results),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _machine(setup: dict[str, Any]) -> str:
    if not setup:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in setup["versions"].items())
    compiled = (
        f"compiling the simulated GPU, once per torch version, took {setup['compile_seconds']:.0f}"
        " s and is not counted"
    )
    return f"Measured {setup['date']} on one {setup['gpu']} with {versions}; {compiled}."


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in header[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows))


def _answers(results: Results) -> list[list[str]]:
    return [
        [
            name,
            f"{pair['memory_gib']} GiB",
            _true_cell(results, name),
            *(_answer_cell(results, name, method) for method in METHODS),
        ]
        for name, pair in results.pairs.items()
    ]


def _true_cell(results: Results, pair: str) -> str:
    again = results.get(pair, "truth").get("fit_again_beyond")
    return _shown(results.true(pair)) + (f" (and {', '.join(map(str, again))})" if again else "")


def _answer_cell(results: Results, pair: str, method: str) -> str:
    record, true = results.get(pair, method), results.true(pair)
    answer = record.get("answer")
    if answer is None:
        return record.get("outcome", "not run")
    if true is None:
        return str(answer)
    return f"**{answer}**" if answer == true else f"{answer} ({100 * answer / true:.0f} %)"


def _costs(results: Results) -> list[list[str]]:
    rows = []
    for name in results.pairs:
        ours = results.get(name, "ours").get("wall_seconds")
        cells = [
            _cost_cell(results.get(name, method), None if method == "ours" else ours)
            for method in METHODS
        ]
        rows.append([name, *cells, _seconds(results.get(name, "ours-again"))])
    return rows


def _cost_cell(record: dict[str, Any], ours_seconds: float | None) -> str:
    if "num_trials" not in record:
        return record.get("outcome", "not run")
    beside = "\\*" if record.get("at_once", 1) > 1 else ""
    ratio = f" ({record['wall_seconds'] / ours_seconds:.1f} x)" if ours_seconds else ""
    stopped = "" if record["outcome"] == "ok" else f" {record['outcome']}"
    return (
        f"{_seconds(record)}{beside}{ratio}, {record['num_trials']},"
        f" {record['num_out_of_memory']}{stopped}"
    )


def _seconds(record: dict[str, Any]) -> str:
    return f"{record['wall_seconds']:.1f} s" if "wall_seconds" in record else ""


def _shown(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def summary(results: Results) -> list[str]:
    lines = [_of_method(results, method) for method in METHODS]
    known = [
        name
        for name in results.pairs
        if results.true(name) is not None and results.answer(name, "ours") is not None
    ]
    return [line for line in (*lines, *(_goals(results, known) if known else [])) if line]


def _of_method(results: Results, method: str) -> str:
    pairs = [
        name
        for name in results.pairs
        if results.true(name) and results.answer(name, method) is not None
    ]
    if not pairs:
        return ""
    shares = [results.answer(name, method) / results.true(name) for name in pairs]  # type: ignore[operator]
    records = [results.get(name, method) for name in pairs]
    mean = math.exp(sum(math.log(share) for share in shares if share > 0) / len(shares))
    return (
        f"{METHODS[method]}: right in {sum(share == 1 for share in shares)} of {len(shares)}, above"
        f" the true answer in {sum(share > 1 for share in shares)}; on average {100 * mean:.0f} %"
        " of it (geometric mean); median"
        f" {statistics.median(r['wall_seconds'] for r in records):.1f} s,"
        f" {sum(r['num_trials'] for r in records)} trials,"
        f" {sum(r['num_out_of_memory'] for r in records)} out-of-memory errors in all"
    )


def _goals(results: Results, pairs: Sequence[str]) -> list[str]:
    ours = {name: results.get(name, "ours") for name in pairs}
    right = sum(results.answer(name, "ours") == results.true(name) for name in pairs)
    above = sum((results.answer(name, "ours") or 0) > (results.true(name) or 0) for name in pairs)
    early = sum(
        any(outcome != "ok" for _, outcome in record["trials"][:1]) for record in ours.values()
    )
    probes = max(record["num_trials"] for record in ours.values())
    goals = [
        (
            right >= RIGHT_OF_TEN * len(pairs),
            f"the true answer in at least 9 of 10: {right} of {len(pairs)}",
        ),
        (above == 0, f"never above it: {above}"),
        (probes <= MOST_PROBES, f"at most {MOST_PROBES} real probes: {probes}"),
        (early == 0, f"no out-of-memory error before the deliberate one: {early}"),
        *_as_fast(results, pairs),
    ]
    return [f"goal {'met' if met else '**missed**'}: {text}" for met, text in goals]


def _as_fast(results: Results, pairs: Sequence[str]) -> list[tuple[bool, str]]:
    """Against the fastest peer, where both ran alone."""
    goals = []
    for name in pairs:
        alone = [
            m for m in PEERS if results.get(name, m).get("at_once") == 1 and results.answer(name, m)
        ]
        seconds = {m: results.get(name, m)["wall_seconds"] for m in alone}
        if seconds:
            fastest, ours = (
                min(seconds, key=lambda m: seconds[m]),
                results.get(name, "ours")["wall_seconds"],
            )
            text = (
                f"no slower than the fastest of them, {name}: {ours:.1f} s, {METHODS[fastest]}"
                f" {seconds[fastest]:.1f} s"
            )
            goals.append((ours <= seconds[fastest], text))
    return goals


def _footnotes(results: Results) -> str:
    at_once = {
        record.get("at_once", 1)
        for (_, method), record in results.records.items()
        if method in PEERS
    } - {1}
    lines = (
        [
            f"\\* {max(at_once)} searches ran at once, each on its own cores: these seconds are no"
            " fair race."
        ]
        if at_once
        else []
    )
    for name in results.pairs:
        lines += [
            f"{name}: {note}."
            for note in results.get(name, "ours").get("notes", [])
            if "not monotone" in note
        ]
        for method in METHODS:
            error = results.get(name, method).get("error")
            if error:
                lines.append(f"{name}, {METHODS[method]}: {error.strip().splitlines()[-1][:160]}")
    return "\n".join(f"- {line}" for line in lines)


def main() -> int:
    records = Path(sys.argv[1])
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).with_name("README.md")
    write_atomically(target, page(read(records), records.as_posix()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
