"""With max-autotune, kernels of cuBLAS and cuDNN win against Triton's templates.

Why: without a GPU the speed of a template is not known. The memory that timing takes is allocated
all the same.
"""

import sys
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._inductor.select_algorithm"
NOTE = (
    "max-autotune chooses kernels by timing them: those of cuBLAS and cuDNN were taken, and "
    "Triton's where there is no other"
)
SLOW_MILLISECONDS = 1e6


def apply(patcher: Patcher) -> None:
    template = sys.modules[LIBRARY].TritonTemplateCaller
    benchmark = template.benchmark

    def as_slow(self: Any, *arguments: Any, **options: Any) -> float:
        patcher.gpu.note(NOTE)
        return SLOW_MILLISECONDS + float(benchmark(self, *arguments, **options))

    patcher.put(template, "benchmark", as_slow)
