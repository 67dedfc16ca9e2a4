"""vramcast forecasts a PyTorch training run before it runs.

import vramcast
vramcast.predict("train.py:build", batch_size=8, gpu="rtx-4090")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramcast.api import predict, predict_batch_sizes
    from vramcast.benching.api import bench, compare
    from vramcast.calibration.api import calibrate
    from vramcast.capacity import MaxBatch, max_batch
    from vramcast.configuration import Configuration, load_configuration
    from vramcast.errors import EnvironmentProblem, UsageError, VramcastError, WorkloadError
    from vramcast.fastest import tune
    from vramcast.gpus import GPUS, Gpu, find_gpu
    from vramcast.planning.api import plan
    from vramcast.planning.records import Plan
    from vramcast.probing.api import probe
    from vramcast.records import BatchSizeCurve, BatchSizePoint, LargeTensor, Measurement, Prediction
    from vramcast.suites.api import accuracy
    from vramcast.workload import register

__version__ = "0.1.0"

_HOME = {
    "Configuration": "configuration",
    "load_configuration": "configuration",
    "predict": "api",
    "predict_batch_sizes": "api",
    "probe": "probing.api",
    "max_batch": "capacity",
    "MaxBatch": "capacity",
    "plan": "planning.api",
    "Plan": "planning.records",
    "bench": "benching.api",
    "compare": "benching.api",
    "tune": "fastest",
    "accuracy": "suites.api",
    "calibrate": "calibration.api",
    "Measurement": "records",
    "Prediction": "records",
    "LargeTensor": "records",
    "BatchSizeCurve": "records",
    "BatchSizePoint": "records",
    "GPUS": "gpus",
    "Gpu": "gpus",
    "find_gpu": "gpus",
    "register": "workload",
    "VramcastError": "errors",
    "UsageError": "errors",
    "WorkloadError": "errors",
    "EnvironmentProblem": "errors",
}
__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used: importing vramcast stays fast and does not import torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'vramcast' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(f"vramcast.{_HOME[name]}")
    value = getattr(module, name)
    globals()[name] = value
    return value
