"""With max-autotune, kernels of cuBLAS and cuDNN win against Triton's templates.

Why: without a GPU the speed of a template is not known, so times are not printed. The memory that
timing takes is allocated all the same. What a failed attempt holds is freed by Python's garbage
collector: here always after the last attempt, so that the answer does not depend on how many
objects there were before.
"""

import sys
from typing import Any

from vramcast.simulate.patching import Patcher
from vramcast.simulate.quick_imports import no_collections

LIBRARY = "torch._inductor.select_algorithm"
NOTE = (
    "max-autotune chooses kernels by timing them: those of cuBLAS and cuDNN were taken, and "
    "Triton's where there is no other"
)
SLOW_MILLISECONDS = 1e6


def apply(patcher: Patcher) -> None:
    algorithms = sys.modules[LIBRARY]
    template, selector = algorithms.TritonTemplateCaller, algorithms.AlgorithmSelectorCache
    benchmark, time_all = template.benchmark, selector.benchmark_in_current_process

    def as_slow(self: Any, *arguments: Any, **options: Any) -> float:
        patcher.gpu.note(NOTE)
        return SLOW_MILLISECONDS + float(benchmark(self, *arguments, **options))

    def without_collections(_: Any, *arguments: Any, **options: Any) -> Any:
        with no_collections():
            return time_all(*arguments, **options)

    patcher.put(template, "benchmark", as_slow)
    patcher.put(selector, time_all.__name__, classmethod(without_collections))
    patcher.put(selector, "log_results", staticmethod(lambda *_, **__: None))
    patcher.put(algorithms, "_log_autotune_choices_stats", lambda *_, **__: None)
