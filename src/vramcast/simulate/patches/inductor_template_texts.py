"""The templates of Inductor's kernels are read when one is used.

Why: reading them when Inductor is imported takes half a second, and most programs use none.
"""

import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._inductor.codegen.common"


def apply(patcher: Patcher) -> None:
    template = sys.modules[LIBRARY].KernelTemplate
    read = template._template_from_string
    later = staticmethod(lambda source: _Later(read, source))
    patcher.put(template, "_template_from_string", later)


class _Later:
    def __init__(self, read: Callable[[str], Any], source: str) -> None:
        self._read, self._source = read, source

    @cached_property
    def _template(self) -> Any:
        return self._read(self._source)

    def render(self, *arguments: Any, **values: Any) -> str:
        return str(self._template.render(*arguments, **values))
