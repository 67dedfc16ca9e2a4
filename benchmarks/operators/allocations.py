"""Whether operators allocate and free on the simulated GPU what they do on a real one.

    export PYTHONPATH=src
    python benchmarks/operators/allocations.py record OUT.jsonl.gz [--dtype float32] [NAME ...]
    python benchmarks/operators/allocations.py compare RECORDED.jsonl.gz [NAME ...]

The operators and samples are those of torch's own tests, and large tensors for operators of one
element, of two, and reductions. `record` runs them on a real GPU, forward and backward, and needs
the package expecttest. `compare` runs those of the recording on the simulated one, with the same
version of torch, and lists what differs. Every sample is run twice and the second run counts: the
first also takes workspaces that stay.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "recordings"))

from compared_events import ordered, peak  # noqa: E402

MAX_SAMPLES = 12
MAX_TEXT = 160
# An operator that takes longer is left out, and so is one that ends the process.
MAX_SECONDS = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["record", "compare", "run"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.what == "record":
        recorded(asked)
    elif asked.what == "run":
        run_on_gpu(asked)
    else:
        compare(asked)


def recorded(asked: argparse.Namespace) -> None:
    """Runs operators in a process, and in another one after each that ended it."""
    command = [sys.executable, __file__, "run", str(asked.file), "--dtype", asked.dtype]
    done = "begun"
    while done:
        process = subprocess.Popen([*command, *asked.names], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        done = ""
        for line in process.stdout:
            done = line
        process.wait()


def run_on_gpu(asked: argparse.Namespace) -> None:
    """Appends a line for every operator that the file does not have yet."""
    import torch

    known = {one["name"] for one in read(asked.file)} if asked.file.exists() else set()
    warm_up()
    for operator in operators(asked.dtype, asked.names):
        name = named(operator, asked.dtype)
        if name in known:
            continue
        # where it ends this process, the next one does not begin it again
        append(asked.file, {"name": name, "samples": [], "error": "ended the process"})
        print(name, flush=True)
        begun = time.monotonic()
        samples = []
        for label, run in runs(operator, asked.dtype, "cuda"):
            samples.append([label, *tried(run, events_on_gpu)])
            if time.monotonic() - begun > MAX_SECONDS or is_broken(samples[-1]):
                break
        append(asked.file, {"name": name, "samples": samples, "torch": torch.__version__})
        if samples and is_broken(samples[-1]):
            sys.exit("another process goes on")


def is_broken(sample: list[Any]) -> bool:
    """After an error of a kernel nothing runs in this process any more."""
    return isinstance(sample[1], str) and "CUDA error" in sample[1]


def compare(asked: argparse.Namespace) -> None:
    recorded = {one["name"]: one for one in read(asked.file)}
    dtypes = sorted({name.rsplit(" ", 1)[1] for name in recorded})
    from vramcast.simulate import device as simulated

    device = simulated.Device()  # before torch is imported
    from vramcast.hardware.gpus import find_gpu
    from vramcast.simulate import patches
    from vramcast.simulate.session import Session

    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        stack.enter_context(patches.installed(Session(device, find_gpu("h200")).gpu))
        stack.enter_context(device.on())
        warm_up()
        gc.freeze()
        for dtype in dtypes:
            for operator in operators(dtype, asked.names):
                name = named(operator, dtype)
                if name not in recorded:
                    continue
                real = {one[0]: one[1:] for one in recorded[name]["samples"]}
                for label, run in runs(operator, dtype, "cuda"):
                    if label in real:
                        guess = tried(run, lambda run: events_simulated(device, run))
                        said = judged(real[label], guess)
                        counts[said] += 1
                        if said != "same":
                            print(f"{said} | {name} {label} | {real[label]} | {guess}"[:1500])
                gc.collect()
    print(dict(counts), file=sys.stderr)


def operators(dtype_name: str, names: list[str]) -> list[Any]:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    dtype = getattr(torch, dtype_name)
    return [
        one
        for one in op_db
        if dtype in one.supported_dtypes("cuda")
        if not names or any(name in one.formatted_name for name in names)
    ]


def named(operator: Any, dtype: str) -> str:
    return f"{operator.formatted_name} {dtype}"


def runs(operator: Any, dtype_name: str, device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A label and a function for every sample, which returns what is to be differentiated."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map

    dtype = getattr(torch, dtype_name)
    has_gradient = operator.supports_autograd and (dtype.is_floating_point or dtype.is_complex)

    def there(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().to(device).requires_grad_(value.requires_grad)
        return torch.device(device) if isinstance(value, torch.device) else value

    torch.manual_seed(0)
    given = list(operator.sample_inputs("cpu", dtype, requires_grad=has_gradient))[:MAX_SAMPLES]
    for number, sample in enumerate(given):
        try:
            first, others, options = tree_map(there, (sample.input, sample.args, sample.kwargs))
        except Exception:
            continue
        if "device" in options:
            options["device"] = device
        leaves = tree_leaves((first, others, options))
        yield (
            f"{number}",
            lambda f=first, o=others, k=options, leaves=leaves: (operator(f, *o, **k), leaves),
        )
    for label, arguments, options in large(operator, dtype, device, has_gradient):
        yield label, lambda a=arguments, k=options: (operator(*a, **k), list(a))


def large(
    operator: Any, dtype: Any, device: str, has_gradient: bool
) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    import torch
    from torch.testing._internal.opinfo import core

    def made(*shape: int) -> Any:
        x = torch.ones(shape, dtype=dtype, device=device)
        return x.requires_grad_(has_gradient)

    if isinstance(operator, core.UnaryUfuncInfo):
        yield "large", [made(1024, 1000)], {}
        yield "large, transposed", [made(1024, 1000).t()], {}
    if isinstance(operator, core.BinaryUfuncInfo):
        yield "large", [made(1024, 1000), made(1024, 1000)], {}
        yield "large, broadcast", [made(64, 300, 1000), made(300, 1)], {}
    if isinstance(operator, core.ReductionOpInfo):
        for dim in (None, 0, 1, 2, (0, 2)):
            yield f"large, dim {dim}", [made(64, 300, 1000)], {} if dim is None else {"dim": dim}


def tried(run: Callable[[], Any], events_of: Callable[[Any], list[int]]) -> list[Any]:
    """What the second forward and backward allocate and free, or the error's text."""
    try:
        whole(run)
        return [events_of(lambda: whole(run))]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"[:MAX_TEXT]]


def whole(run: Callable[[], Any]) -> None:
    import torch
    from torch.utils._pytree import tree_leaves

    results, leaves = run()
    tensors = [x for x in tree_leaves(results) if isinstance(x, torch.Tensor)]
    trained = [x for x in tensors if x.requires_grad and x.layout == torch.strided]
    inputs = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    if trained and inputs:
        ones = [torch.ones_like(x) for x in trained]
        torch.autograd.grad(trained, inputs, ones, allow_unused=True)


def warm_up() -> None:
    import torch

    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    torch.nn.functional.linear(x, x, x[0]).sum().backward()
    (x @ x).sum().backward()


def events_on_gpu(run: Callable[[], Any]) -> list[int]:
    from vramcast.hardware.calibration.measure import allocations_of

    def result_is_freed() -> None:
        run()

    return allocations_of(result_is_freed)


def events_simulated(device: Any, run: Callable[[], Any]) -> list[int]:
    before = len(device.events())
    run()
    events = device.events()[before:]
    allocations = device.allocations()
    mine = {event for event in events if event > 0}
    sizes = [allocations[abs(event) - 1].num_bytes for event in events]
    return [
        size if event > 0 else -size if -event in mine else 0
        for event, size in zip(events, sizes, strict=True)
    ]


def judged(real: list[Any], guess: list[Any]) -> str:
    real_one, guess_one = real[0], guess[0]
    if isinstance(real_one, str) or isinstance(guess_one, str):
        both = isinstance(real_one, str) and isinstance(guess_one, str)
        return (
            "same" if both else "refused by the real GPU" if isinstance(real_one, str) else "failed"
        )
    # 0: memory from before is freed
    if ordered([*filter(None, real_one)]) == ordered([*filter(None, guess_one)]):
        return "same"
    return "other order" if peak(real_one) == peak(guess_one) else "other peak"


def read(file: Path) -> list[dict[str, Any]]:
    """The newest line of each name."""
    with gzip.open(file, "rt") as lines:
        return list({one["name"]: one for one in map(json.loads, lines)}.values())


def append(file: Path, line: dict[str, Any]) -> None:
    with gzip.open(file, "at") as out:
        out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
