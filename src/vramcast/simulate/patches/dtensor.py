"""DTensor asks a question about all tensors of a list once, not once for each of them.

Why: for the lists of an optimizer, torch 2.13 looks through all tensors again for each one: of 38
seconds for a step with 580 parameters, 25 went there. The answer is the same for the whole list.
Versions: torch 2.13; others do not have this function.
"""

from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "torch.distributed.tensor._sharding_prop"


def apply(patcher: Patcher) -> None:
    from torch.distributed.tensor import _sharding_prop as sharding

    propagate = getattr(sharding, "_propagate_use_strided_shard_flag", None)
    if propagate is None:
        return
    asked: Any = None
    is_strided = False

    def once(strategy: Any, schema: Any) -> None:
        nonlocal asked, is_strided
        if schema is not asked:
            asked, is_strided = (
                schema,
                any(
                    isinstance(placement, sharding._StridedShard)
                    for spec in schema.args_spec
                    for placement in spec.placements
                ),
            )
        if is_strided:
            propagate(strategy, schema)

    patcher.put(sharding, "_propagate_use_strided_shard_flag", once)
