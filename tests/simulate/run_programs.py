"""Simulates every program of a folder in this process and writes what came of each.

python tests/simulate/run_programs.py OUT.json
"""

from __future__ import annotations

import gc
import importlib
import inspect
import json
import pkgutil
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "src"), str(HERE)]

from vramcast.errors import WorkloadError  # noqa: E402
from vramcast.hardware.gpus import find_gpu  # noqa: E402
from vramcast.simulate import host_reads  # noqa: E402
from vramcast.simulate.device import Device  # noqa: E402
from vramcast.simulate.session import Session  # noqa: E402

STEPS = 2


def simulate(session: Session, build: Any) -> dict[str, Any]:
    # what earlier programs imported: collections need not look at it
    gc.freeze()
    try:
        run = session.run(build, {}, STEPS, locate=False)
    except WorkloadError as error:
        return {"error": error.message}
    return {"error": "", "limits": run.notes}


def main() -> None:
    warnings.simplefilter("ignore")
    # more take longer, and are found in the same way
    host_reads.MAX_READS, host_reads.MAX_KNOWN_READS = 2_000, 2_200
    session = Session(Device(), find_gpu("h200"))
    import programs

    found = {}
    for module in pkgutil.iter_modules(programs.__path__):
        members = vars(importlib.import_module(f"programs.{module.name}")).items()
        found |= {
            f"{module.name}.{name}": function
            for name, function in members
            if inspect.isfunction(function) and function.__module__.endswith(module.name)
            if module.name != "common" and not name.startswith("_")
        }
    results = {name: simulate(session, function) for name, function in found.items()}
    Path(sys.argv[1]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
