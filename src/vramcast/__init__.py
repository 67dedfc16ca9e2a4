"""vramcast forecasts a PyTorch training run before it runs.

import vramcast
vramcast.predict("train.py:build", batch_size=8, gpu="rtx-4090")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramcast.benching.bench import bench, compare
    from vramcast.errors import EnvironmentProblem, UsageError, VramcastError, WorkloadError
    from vramcast.hardware.calibration.calibrate import calibrate
    from vramcast.hardware.gpus import GPUS, Gpu, find_gpu
    from vramcast.predicting.max_batch import MaxBatch, max_batch
    from vramcast.predicting.plan import plan
    from vramcast.predicting.predict import predict, predict_batch_sizes
    from vramcast.probing.probe import probe
    from vramcast.records.measurement import Measurement
    from vramcast.records.plan import Plan
    from vramcast.records.prediction import BatchSizeCurve, BatchSizePoint, LargeTensor, Prediction
    from vramcast.suites.accuracy import accuracy
    from vramcast.tuning.tune import tune
    from vramcast.workload import register
    from vramcast.workload.configuration import Configuration, load_configuration

__version__ = "0.1.0"

_HOME = {
    "Configuration": "workload.configuration",
    "load_configuration": "workload.configuration",
    "predict": "predicting.predict",
    "predict_batch_sizes": "predicting.predict",
    "probe": "probing.probe",
    "max_batch": "predicting.max_batch",
    "MaxBatch": "predicting.max_batch",
    "plan": "predicting.plan",
    "Plan": "records.plan",
    "bench": "benching.bench",
    "compare": "benching.bench",
    "tune": "tuning.tune",
    "accuracy": "suites.accuracy",
    "calibrate": "hardware.calibration.calibrate",
    "Measurement": "records.measurement",
    "Prediction": "records.prediction",
    "LargeTensor": "records.prediction",
    "BatchSizeCurve": "records.prediction",
    "BatchSizePoint": "records.prediction",
    "GPUS": "hardware.gpus",
    "Gpu": "hardware.gpus",
    "find_gpu": "hardware.gpus",
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
