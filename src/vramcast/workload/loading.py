"""Loads the user's function and checks the step it returns, in a worker process."""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from vramcast.errors import VramcastError, WorkloadError
from vramcast.text import did_you_mean
from vramcast.workload.reference import WorkloadReference, refusals
from vramcast.workload.tracebacks import shown_path, user_traceback

EXPECTED = (
    "A workload's function returns a function without arguments that does one training step "
    "and returns the loss."
)

TEMPLATE = """\
A workload is a function like this one:

    def build(*, batch_size=8):
        model = MyModel().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        inputs = torch.randn(batch_size, 1024, device="cuda")

        def step():
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step
"""


FLASH_ATTENTION = "flash_attn"
# Ways to define a name that is not written in the file.
UNWRITTEN = ("import *", "globals(", "__getattr__", "exec(", "setattr(")


def load_function(reference: WorkloadReference) -> Callable[..., Any]:
    name, where = reference.function, _shown(reference)
    if reference.path and _is_script(reference.path, name):
        raise WorkloadError(
            f"There is no function {name!r} in {where}.",
            f"To predict the program as you start it: vramcast predict -- python {where}\n"
            f"{TEMPLATE}".rstrip(),
        )
    module = _import(reference)
    with refusals():
        function: object = getattr(module, name, None)
    if callable(function):
        return function
    known = _public_functions(module)
    advice = f"{where} defines no public function."
    if known:
        advice = f"Functions there: {', '.join(known)}."
    if hasattr(module, name):
        raise WorkloadError(f"{name!r} in {where} is not a function but {_a(function)}.", advice)
    hint = did_you_mean(name, known)
    advice = hint + advice if hint else f"{advice}\n{TEMPLATE}".rstrip()
    raise WorkloadError(f"There is no function {name!r} in {where}.", advice)


def _is_script(path: Path, name: str) -> bool:
    """Whether importing the file would run a loop, such as a training, and would not define the
    name."""
    try:
        text = path.read_text()
        statements = ast.parse(text).body
    except (OSError, ValueError, SyntaxError, RecursionError):
        return False  # importing it will report the error
    is_written = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
    has_loop = any(isinstance(one, ast.For | ast.While) for one in statements)
    return has_loop and not is_written and not any(way in text for way in UNWRITTEN)


def check_step(value: object) -> Callable[[], Any]:
    if not callable(value):
        problem, advice = f"returned {_a(value)}, not a step to call", _hint(value)
    # A torch module is recognised without importing torch.
    elif hasattr(value, "forward") and hasattr(value, "parameters"):
        problem = f"returned a model ({type(value).__name__}), not a step to call"
        advice = "Write `def step(): ...` with forward, backward and optimizer, and `return step`."
    elif needed := _required_parameters(value):
        problem = f"returned a step that needs arguments ({', '.join(needed)})"
        advice = "Make the batch inside the step."
    else:
        return value
    raise WorkloadError(f"The workload's function {problem}.", f"{EXPECTED} {advice}".strip())


def _import(reference: WorkloadReference) -> ModuleType:
    try:
        return _import_file(reference.path) if reference.path else _import_module(reference)
    except VramcastError:
        raise
    except SystemExit as error:
        raise WorkloadError(
            f"{_shown(reference)} ended the program while it was imported "
            f"(exit code {error.code}).",
            'Put what runs the script under `if __name__ == "__main__":`.',
        ) from error
    except Exception as error:
        # Running out of memory is a result, not a mistake in the file.
        if type(error).__name__ == "OutOfMemoryError":
            raise
        raise _import_failure(reference, error) from error


def _import_file(path: Path) -> ModuleType:
    # The folder stays on the path, because build() may import its neighbours later. The name is
    # unique, because the file may be called torch.py; pickle finds the module by it.
    _put_on_path(str(path.parent))
    name = f"vramcast_workload_{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader, f"a .py file always has a loader: {path}"
    module = importlib.util.module_from_spec(spec)
    # before it runs, because dataclasses and pickle look up their module
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _import_module(reference: WorkloadReference) -> ModuleType:
    name = reference.module or ""
    _put_on_path(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        absent = error.name or ""
        if not f"{name}.".startswith(f"{absent}."):
            raise  # the module exists; something that it imports does not
        raise WorkloadError(
            f"There is no module {name!r} (named by {reference.text!r}; {absent!r} was not found).",
            "Install the package that has it in this environment, start from the folder that has "
            f"it (now {os.getcwd()}), or name the file: path/to/file.py:function.",
        ) from error


def _put_on_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _import_failure(reference: WorkloadReference, error: Exception) -> WorkloadError:
    if isinstance(error, SyntaxError) and error.filename and os.path.isfile(error.filename):
        where = f"{shown_path(error.filename)}:{error.lineno}"
        text = f"\n    {error.text.strip()}" if error.text else ""
        message = f"{where} is not valid Python: {error.msg}{text}"
        return WorkloadError(message, "Correct that line.")
    message = f"{_shown(reference)} cannot be imported:\n{user_traceback(error)}"
    name = reference.path.stem if reference.path else reference.module
    advice = f"Make `import {name}` work first; vramcast runs the file as it is."
    if isinstance(error, ImportError) and "relative import" in str(error):
        advice = (
            "A file that imports relative to its package is named as package.module:function, "
            "started from the folder of the package."
        )
    elif isinstance(error, ModuleNotFoundError) and error.name:
        advice = missing_module_advice(error.name)
    return WorkloadError(message, advice)


def missing_module_advice(name: str) -> str:
    package = name.partition(".")[0]
    if package != name and package in sys.modules:
        return (
            f"{package} is installed in the environment of {sys.executable}, but has no {name}: "
            f"another version of {package} has it, or the import is wrong."
        )
    if package == FLASH_ATTENTION:
        return (
            "Without a GPU, its Python part is enough, which is installed with: "
            "FLASH_ATTENTION_FORCE_BUILD=TRUE FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE "
            f"{sys.executable} -m pip install --no-build-isolation flash-attn"
        )
    return (
        f"Install what provides {package!r} in the environment of {sys.executable}, or correct the "
        "import."
    )


def _public_functions(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and value.__module__ == module.__name__
    ]


def _required_parameters(step: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):  # a callable written in C may have no signature
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [one for one in parameters if one.default is one.empty and one.kind not in optional]
    return [one.name for one in needed]


def _shown(reference: WorkloadReference) -> str:
    return shown_path(str(reference.path)) if reference.path else f"the module {reference.module}"


def _a(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _hint(value: object) -> str:
    if value is None:
        return "Is `return step` missing at its end?"
    if isinstance(value, tuple | list) and any(map(callable, value)):
        return "Return the step alone; it keeps hold of model and optimizer by itself."
    if type(value).__name__ in ("Tensor", "float"):
        return "Write `return step`, without calling it."
    return ""
