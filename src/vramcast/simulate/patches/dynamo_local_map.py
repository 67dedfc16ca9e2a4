"""Dynamo does not import `local_map` only to see that a function is another one.

Why: it asks so of the first function that it meets, and importing the library of parallel tensors
takes a fiftieth of a compiled prediction.
"""

import sys
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._dynamo.variables.higher_order_ops"
WRAPPED_BY = "torch.distributed.tensor.experimental._func_map"


def apply(patcher: Patcher) -> None:
    owner: Any = getattr(sys.modules[LIBRARY], "LocalMapWrappedHigherOrderVariable", None)
    if owner is None:  # not every version of torch asks
        return
    ask = owner.should_wrap_in_hop

    def should_wrap_in_hop(value: Any) -> bool:
        return WRAPPED_BY in sys.modules and ask(value)

    patcher.put(owner, ask.__name__, staticmethod(should_wrap_in_hop))
