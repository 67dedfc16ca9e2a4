"""Records of every kind, as commands wrote them (records/), and what pages are made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parent / "records"
ACCURACY = Path(__file__).parents[2] / "benchmarks" / "accuracy" / "h200-torch-2.11"
PAGES: dict[str, list[Path]] = {
    "prediction": [RECORDS / "prediction.json"],
    "does not fit": [RECORDS / "does-not-fit.json"],
    "several GPUs": [RECORDS / "ranks.json"],
    "prediction and measurement": [
        RECORDS / "h200-prediction.json",
        RECORDS / "h200-measurement.json",
    ],
    "measurement": [RECORDS / "h200-measurement.json"],
    "sensitivity": [RECORDS / "sensitivity.json"],
    "trace": [RECORDS / "trace.json"],
    "curve": [RECORDS / "curve.json"],
    "several predictions": [RECORDS / "predictions.json"],
    "max-batch": [RECORDS / "max-batch.json"],
    "GPUs with their cost": [RECORDS / "gpus.json"],
    "advice": [RECORDS / "advice.json"],
    "difference": [RECORDS / "run-diff.json"],
    "plan": [RECORDS / "plan.json"],
    "fit": [RECORDS / "fit.json"],
    "tune": [
        RECORDS / "tune.json"
    ],  # of a run on the CPU; what was applied is invented, so that there is something to draw
    "bench": [RECORDS / "bench"],
    "compare": [RECORDS / "compare.json"],
    "accuracy": [ACCURACY],
}
# Together they have every part that a page can have; the other pages are alike.
OF_ALL_PARTS = (
    *("prediction", "does not fit", "several GPUs", "prediction and measurement", "sensitivity"),
    *("several predictions", "difference", "plan", "tune", "bench", "accuracy"),
)
HOSTILE = (
    '</script><script>document.title="owned"</script>'
    "<img src=x onerror=\"document.title='owned'\">`[x](javascript:1)|*\x1b[31m"
)

# what a record may lack, and what is said then
TENSOR = {
    "num_bytes": 9 << 30,
    "category": "parameters",
    "name": "w",
    "shape": [1],
    "dtype": "float32",
    "operator": "aten::empty",
}
TENSOR |= {"module": "", "source": ""}
NO_GPU = dict.fromkeys(
    ("gpu", "capacity_bytes", "process_bytes", "step_seconds", "step", "tokens_per_second")
)
NOTHING_ALIVE = {"timeline": [], "largest_tensors": [], "alive_at_peak": [], "step_memory": None}
NO_STEP = {
    "times": None,
    "warm": None,
    "cold": None,
    "losses": [],
    "outcome": "out_of_memory",
    "error": "line 1\nline 2",
}
NONE_FITS = dict.fromkeys(
    (
        "largest_batch",
        "reserved_law",
        "allocated_law",
        "maximum",
        "recommended",
        "conservative",
        "fastest",
        "knee",
    )
)
NONE_FITS |= {
    "micro_batch": None,
    "speeds": [],
    "missing_bytes": 5,
    "largest_tensors": [TENSOR],
    "advice": ["less"],
}
NO_STEPS = {"losses": [], "step_seconds": [], "step_memory_bytes": [], "outcome": "crashed"}
ODD: list[tuple[str, dict[str, Any], str]] = [
    ("prediction.json", NO_GPU, "not predicted"),
    ("prediction.json", NOTHING_ALIVE, "Predicted"),
    ("h200-measurement.json", NO_STEP, "out of memory"),
    ("h200-measurement.json", {"outcome": "unfinished"}, "unfinished"),
    ("max-batch.json", NONE_FITS, "not even"),
    ("curve.json", {"capacity_bytes": None}, "no memory size was given"),
    ("bench/small/result.json", NO_STEPS, "failed or diverged"),
    (
        "bench/small/result.json",
        {
            "outcome": "diverged",
            "losses": [5.5, None],
            "step_seconds": [0.1, 0.1],
            "step_memory_bytes": [1, 1],
        },
        "diverged",
    ),
    ("tune.json", {"rows": []}, "nothing that was tried"),
]


def record(name: str) -> Any:
    return json.loads((RECORDS / name).read_text())


def put(path: Path, data: Any) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path
