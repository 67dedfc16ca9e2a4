"""Higher-order operators, such as FlexAttention, do not see the simulated device's dispatch key.

Why: they choose among kernels in Python by the keys of their arguments and of the thread, and have
none for this key.
"""

from typing import Any

import torch
import torch._ops

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"


def apply(patcher: Patcher) -> None:
    keyset_of = torch._ops._compute_keyset
    fake = torch._C._dispatch_key_parse("Fake")

    def without_ours(arguments: Any, options: Any, keys: Any) -> Any:
        return keyset_of(arguments, options, keys.remove(fake))

    patcher.put(torch._ops, "_compute_keyset", without_ours)
