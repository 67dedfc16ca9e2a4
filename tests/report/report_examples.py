"""Records of every kind, as commands wrote them (records/), and what pages are made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parent / "records"
ACCURACY = Path(__file__).parents[2] / "benchmarks" / "accuracy" / "h200-torch-2.11"
PAGES: dict[str, list[Path]] = {
    "prediction": [RECORDS / "prediction.json"],
    "prediction and measurement": [RECORDS / "h200-prediction.json", RECORDS / "h200-measurement.json"],
    "measurement": [RECORDS / "h200-measurement.json"],
    "curve": [RECORDS / "curve.json"],
    "max-batch": [RECORDS / "max-batch.json"],
    "plan": [RECORDS / "plan.json"],
    "fit": [RECORDS / "fit.json"],
    "tune": [RECORDS / "tune.json"],  # of a run on the CPU; what was applied is invented, so that there is something to draw
    "bench": [RECORDS / "bench"],
    "compare": [RECORDS / "compare.json"],
    "accuracy": [ACCURACY],
}
HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">`[x](javascript:1)|*\x1b[31m'


def record(name: str) -> Any:
    return json.loads((RECORDS / name).read_text())


def put(path: Path, data: Any) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path
