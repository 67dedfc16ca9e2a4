"""A request that a workload cannot meet, said in a sentence and with what to do next."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any


class Refused(ValueError):
    """Whoever asked can put it right: `message` says what is wrong, `advice` what to do."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(f"{message} {advice}".strip())
        self.message, self.advice = message, advice


def need(package: str, what: str, module: str = "") -> Any:
    """The module of a package that is not always installed."""
    module = module or package.replace("-", "_")
    if find_spec(module.partition(".")[0]) is None:
        raise Refused(
            f"{what} needs the package {package}, which is not installed.", f"pip install {package}"
        )
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        missing = problem.name if isinstance(problem, ModuleNotFoundError) else None
        raise Refused(
            f"{what} needs the package {package}, which cannot be imported: {problem}.",
            f"pip install {missing}" if missing else f"pip install --upgrade {package}",
        ) from problem
