"""A launch line is tuned by its placeholders."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast
from vramcast.errors import WorkloadError
from vramcast.probing.trial import Trial
from vramcast.records.tune import Reason
from vramcast.tuning.inspection import inspect_workload
from vramcast.tuning.optimisations import chosen
from vramcast.workload import Text
from vramcast.workload.configuration import Configuration
from vramcast.workload.switches import Switches

LINE = ("python", "train.py", "--b={batch_size}", "--compile={compile}")


def test_what_a_line_takes_is_what_its_placeholders_name() -> None:
    trial = Trial(
        workload="python train.py",
        line=LINE,
        knobs={"batch_size": Text("8"), "compile": Text("True")},
    )
    tried = chosen("batch-size,compile,checkpointing-off,tf32")
    in_force, candidates = inspect_workload(trial, tried)
    assert in_force == {"batch_size": 8, "compile": True}
    refused = {one.name: one.refusal.code if one.refusal else None for one in candidates}
    assert refused == {
        "batch-size": None,
        "compile": Reason.ALREADY_SET,
        "checkpointing-off": Reason.NO_KNOB,
        "tf32": None,
    }


def test_what_came_out_is_a_line_and_what_to_put_at_the_programs_beginning() -> None:
    found = Configuration(
        knobs={"batch_size": 16, "compile": True},
        switches=Switches(tf32=True),
        allocator="expandable_segments:True",
    )
    assert found.launch_lines(LINE) == [
        "# PYTORCH_ALLOC_CONF=expandable_segments:True python train.py --b=16 --compile=True",
        "import torch",
        "torch.backends.cuda.matmul.allow_tf32 = True",
    ]


def test_every_placeholder_has_a_value_to_begin_with(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"\{batch_size\}, and no value for it was given"):
        vramcast.tune(list(LINE), out=tmp_path, device="cpu", compile=False)
