"""Whether a product is padded is decided in every run, as in a first one on a GPU.

Why: Inductor times both ways with tensors of these sizes, and keeps the decision in files. A later
run would not allocate those tensors.
"""

import inspect
import sys
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._inductor.fx_passes.pad_mm"


class _Answers(dict[str, Any]):
    """Replaces torch's LocalCache, for this run only."""

    lookup = dict.get

    def set_value(self, key: str, *, value: Any) -> None:
        self[key] = value


def apply(patcher: Patcher) -> None:
    padding, answers = sys.modules[LIBRARY], _Answers()
    patcher.put(padding, "get_pad_cache", lambda: answers)
    if hasattr(padding, "_should_pad"):
        patcher.put(padding, "_should_pad", inspect.unwrap(padding._should_pad))
