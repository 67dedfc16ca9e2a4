"""`vramcast compare`."""

from __future__ import annotations

from vramcast.benching.bench import compare

NOT_DISTINGUISHABLE = 3


def run(runs: list[str], as_json: bool) -> int:
    found = compare(*runs)
    if as_json:
        print(found.to_json())
    else:
        from rich.console import Console

        from vramcast.reporting.bench import show_comparison

        show_comparison(found, Console())
    return 0 if found.decided else NOT_DISTINGUISHABLE
