"""`vramcast diff`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from vramcast.tracing.diff import diff_traces
from vramcast.tracing.files import read_trace

DIFFERENT = 3


def run(a: str, b: str, as_json: bool) -> int:
    result = diff_traces(read_trace(Path(a)), read_trace(Path(b)))
    if as_json:
        print(json.dumps({"a_file": a, "b_file": b, **asdict(result)}))
    else:
        from rich.console import Console

        from vramcast.reporting.differences import show_differences

        show_differences(result, a, b, Console())
    return 0 if result.same else DIFFERENT
