"""Inductor does not look for what is not there.

Why: which symbols its nodes have, and whether a node is to be debugged, takes a second.
"""

import importlib
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._inductor.compile_fx"


def apply(patcher: Patcher) -> None:
    scheduling = importlib.import_module("torch._inductor.scheduler")
    find = scheduling.Scheduler.get_graph_partition_symbol_inputs

    def find_if_any(*arguments: Any, **options: Any) -> Any:
        if not scheduling.V.graph.sizevars.shape_env.var_to_range:
            return scheduling.OrderedSet()
        return find(*arguments, **options)

    patcher.put(scheduling.Scheduler, find.__name__, find_if_any)
    matcher = importlib.import_module("torch._inductor.pattern_matcher")
    patcher.put(matcher, "_should_debug_node", lambda _: False)
