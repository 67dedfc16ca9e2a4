"""Whether the simulated GPU runs every operator that torch tests itself with, as the CPU does.

    python benchmarks/operators/run.py OUT.json [--dtype float32] [NAME ...]

torch's own tests have a list of operators with sample arguments. Each is run on the CPU and on the
simulated GPU, forward and backward: results and gradients must have the same shapes and types.
Values are not compared, because few are computed. Every operator has a process of its own, so that
a crash is counted. Takes some five minutes of a core, and the package expecttest.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vramcast.hardware.gpus import find_gpu
from vramcast.simulate.device import Device
from vramcast.simulate.session import Session

SESSION = Session(Device(), find_gpu("h200"))  # before torch is imported

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

MAX_SAMPLES = 10
MAX_TEXT = 240
ALIKE, LAYOUT, REFUSED, GPU_ONLY = "alike", "other strides", "both refuse", "the CPU refuses"
WRONG, FAILED, CRASHED = "other shape or type", "only the GPU refuses", "crashed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    dtype = getattr(torch, asked.dtype)
    operators = [
        one
        for one in op_db
        if dtype in one.supported_dtypes("cuda")
        if not asked.names or any(name in one.formatted_name for name in asked.names)
    ]
    gc.freeze()  # collections in the processes need not look at the list
    found = {}
    for number, operator in enumerate(operators, 1):
        found[operator.formatted_name] = in_a_process(lambda one=operator: compared(one, dtype))
        print(f"\r{number} of {len(operators)}", end="", file=sys.stderr, flush=True)
    counts = Counter(worst["kind"] for worst in found.values())
    content = {
        "made": f"{datetime.now(UTC):%Y-%m-%d}",
        "torch": torch.__version__,
        "dtype": asked.dtype,
        "operators": len(found),
        "counts": dict(counts.most_common()),
        "not alike": {name: worst for name, worst in found.items() if worst["kind"] != ALIKE},
    }
    asked.out.write_text(json.dumps(content, indent=1) + "\n")
    print("\n" + "\n".join(f"{count:5d} {kind}" for kind, count in counts.most_common()))


def in_a_process(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.close(reading)
        os.write(writing, json.dumps(work()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    status = os.waitpid(process, 0)[1]
    return json.loads(text) if text else {"kind": CRASHED, "status": status}


def compared(operator: Any, dtype: torch.dtype) -> dict[str, Any]:
    """The worst that came of its samples."""
    has_gradient = operator.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    samples = list(operator.sample_inputs("cpu", dtype, requires_grad=has_gradient))[:MAX_SAMPLES]
    expected = [tried(operator, sample, "cpu") for sample in samples]
    with SESSION.recording(locate=False):
        given = [tried(operator, sample, "cuda") for sample in samples]
    found = [judged(*pair) for pair in zip(expected, given, strict=True)]
    order = (CRASHED, FAILED, WRONG, GPU_ONLY, REFUSED, LAYOUT, ALIKE)
    return min(found, key=lambda one: order.index(one["kind"]), default={"kind": ALIKE})


def tried(operator: Any, sample: Any, device: str) -> Any:
    """Shapes, types and strides of results and gradients, or the error's text."""
    try:
        return ran(operator, sample, device)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def ran(operator: Any, sample: Any, device: str) -> list[Any]:
    def there(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().to(device).requires_grad_(value.requires_grad)
        return torch.device(device) if isinstance(value, torch.device) else value

    torch.manual_seed(0)
    first, others, options = tree_map(there, (sample.input, sample.args, sample.kwargs))
    if "device" in options:
        options["device"] = device
    results = tree_leaves(operator(first, *others, **options))
    trained = [x for x in results if isinstance(x, Tensor) and x.requires_grad]
    gradients: list[Any] = []
    if trained:
        dense = [x if x.layout == torch.strided else x.to_dense() for x in trained]
        sum(x.abs().sum() for x in dense).backward()
        leaves = tree_leaves((first, others, options))
        gradients = [x.grad for x in leaves if isinstance(x, Tensor) and x.requires_grad]
    return [described(value) for value in (*results, *gradients)]


def described(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return type(value).__name__
    is_plain = value.layout == torch.strided and not value.is_nested
    shape = list(value.shape) if not value.is_nested else "nested"
    return [shape, str(value.dtype), str(value.layout), list(value.stride()) if is_plain else None]


def judged(expected: Any, given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        kind = REFUSED if isinstance(expected, str) else FAILED
    elif isinstance(expected, str):
        kind = GPU_ONLY
    elif _without_strides(expected) != _without_strides(given):
        kind = WRONG
    else:
        kind = ALIKE if expected == given else LAYOUT
    if kind == ALIKE:
        return {"kind": kind}
    return {"kind": kind, "cpu": str(expected)[:MAX_TEXT], "gpu": str(given)[:MAX_TEXT]}


def _without_strides(values: list[Any]) -> list[Any]:
    return [value[:3] if isinstance(value, list) else value for value in values]


if __name__ == "__main__":
    main()
