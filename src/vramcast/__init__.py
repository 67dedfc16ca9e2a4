"""vramcast forecasts a PyTorch training run before it runs.

import vramcast
vramcast.predict("train.py:build", batch_size=8, gpu="rtx-4090")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramcast.benching.bench import bench, compare
    from vramcast.errors import EnvironmentProblem, UsageError, VramcastError, WorkloadError
    from vramcast.forecast.laws import law_at
    from vramcast.hardware.env import MachineReport, env
    from vramcast.hardware.gpus import GPUS, Gpu, find_gpu
    from vramcast.predicting.calibrate import calibrate, calibrate_host
    from vramcast.predicting.diff import diff
    from vramcast.predicting.fit import fit
    from vramcast.predicting.max_batch import max_batch
    from vramcast.predicting.plan import plan
    from vramcast.predicting.predict import predict, predict_batch_sizes
    from vramcast.predicting.predict_many import predict_many
    from vramcast.predicting.sensitivity import sensitivity
    from vramcast.predicting.server import server
    from vramcast.probing.probe import NotSaved, probe
    from vramcast.processes.progress import Progress
    from vramcast.records.accuracy import AccuracyResult
    from vramcast.records.advice import Advice, AdvisedChange
    from vramcast.records.bench import Comparison, TrainedRun
    from vramcast.records.fit import MemoryFit
    from vramcast.records.measurement import Measurement
    from vramcast.records.plan import Plan
    from vramcast.records.prediction import (
        BatchSizeCurve,
        BatchSizePoint,
        LargeTensor,
        MaxBatch,
        PredictedCase,
        Prediction,
        PredictionTable,
    )
    from vramcast.records.run_diff import RunDiff
    from vramcast.records.sensitivity import Sensitivity
    from vramcast.records.trace_diff import TraceDiff
    from vramcast.records.tune import TuneResult
    from vramcast.reporting.showing import report, show
    from vramcast.suites.accuracy import accuracy
    from vramcast.tuning.advise import advise
    from vramcast.tuning.tune import tune
    from vramcast.workload import register
    from vramcast.workload.configuration import Configuration, load_configuration

__version__ = "0.1.0"

# The module of each public name. It is imported when the name is first used, so that importing
# vramcast is fast.
_HOME = {
    name: module
    for module, names in {
        "benching.bench": "bench compare",
        "errors": "EnvironmentProblem UsageError VramcastError WorkloadError",
        "forecast.laws": "law_at",
        "hardware.env": "MachineReport env",
        "hardware.gpus": "GPUS Gpu find_gpu",
        "predicting.calibrate": "calibrate calibrate_host",
        "predicting.diff": "diff",
        "predicting.fit": "fit",
        "predicting.max_batch": "max_batch",
        "predicting.plan": "plan",
        "predicting.predict": "predict predict_batch_sizes",
        "predicting.predict_many": "predict_many",
        "predicting.sensitivity": "sensitivity",
        "predicting.server": "server",
        "probing.probe": "NotSaved probe",
        "processes.progress": "Progress",
        "records.accuracy": "AccuracyResult",
        "records.advice": "Advice AdvisedChange",
        "records.bench": "Comparison TrainedRun",
        "records.fit": "MemoryFit",
        "records.measurement": "Measurement",
        "records.plan": "Plan",
        "records.prediction": "BatchSizeCurve BatchSizePoint LargeTensor MaxBatch PredictedCase "
        "Prediction PredictionTable",
        "records.run_diff": "RunDiff",
        "records.sensitivity": "Sensitivity",
        "records.trace_diff": "TraceDiff",
        "records.tune": "TuneResult",
        "reporting.showing": "report show",
        "suites.accuracy": "accuracy",
        "tuning.advise": "advise",
        "tuning.tune": "tune",
        "workload": "register",
        "workload.configuration": "Configuration load_configuration",
    }.items()
    for name in names.split()
}
# Written out for type checkers; a test compares it with the table above.
__all__ = [
    "AccuracyResult",
    "Advice",
    "AdvisedChange",
    "BatchSizeCurve",
    "BatchSizePoint",
    "Comparison",
    "Configuration",
    "EnvironmentProblem",
    "GPUS",
    "Gpu",
    "LargeTensor",
    "MachineReport",
    "MaxBatch",
    "Measurement",
    "MemoryFit",
    "NotSaved",
    "Plan",
    "PredictedCase",
    "Prediction",
    "PredictionTable",
    "Progress",
    "RunDiff",
    "Sensitivity",
    "TraceDiff",
    "TrainedRun",
    "TuneResult",
    "UsageError",
    "VramcastError",
    "WorkloadError",
    "__version__",
    "accuracy",
    "advise",
    "bench",
    "calibrate",
    "calibrate_host",
    "compare",
    "diff",
    "env",
    "find_gpu",
    "fit",
    "law_at",
    "load_configuration",
    "max_batch",
    "plan",
    "predict",
    "predict_batch_sizes",
    "predict_many",
    "probe",
    "register",
    "report",
    "sensitivity",
    "server",
    "show",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vramcast' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"vramcast.{_HOME[name]}"), name)
    return value
