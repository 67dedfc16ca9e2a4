"""ZeroRedundancyOptimizer gathers the state of other ranks: for each of their parameters what this
rank has for one of its own.

Why: they send it as bytes, and there are no other ranks.
Versions: torch 2.10 to 2.15.
"""

from typing import Any

import torch
import torch.distributed as dist

from vramcast.simulate.patching import Patcher

LIBRARY = "torch.distributed.optim.zero_redundancy_optimizer"


def apply(patcher: Patcher) -> None:
    from torch.distributed.optim import zero_redundancy_optimizer as library

    optimizers = library.ZeroRedundancyOptimizer
    consolidate, send = optimizers.consolidate_state_dict, library._broadcast_object
    asking: list[Any] = []

    def consolidate_state_dict(self: Any, to: int = 0) -> None:
        asking[:] = [self]
        consolidate(self, to)
        asking.clear()

    def broadcast(sent: Any, src_rank: int, group: Any, device: Any) -> Any:
        if dist.get_rank() == src_rank:
            return send(sent, src_rank, group, device)
        state = _state_of(asking[0], dist.get_group_rank(group, src_rank))
        kept = (each for of_one in state["state"].values() for each in of_one.values())
        num_bytes = sum(each.nbytes for each in kept if isinstance(each, torch.Tensor))
        received = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        dist.broadcast(received, src=src_rank, group=group)
        return state

    patcher.put(optimizers, "consolidate_state_dict", consolidate_state_dict)
    patcher.put(library, "_broadcast_object", broadcast)


def _state_of(optimizer: Any, rank: int) -> dict[str, Any]:
    local = optimizer.optim
    own, own_state = next(iter(local.state.items()), (None, {}))
    state, groups = dict[int, Any](), []
    for group, own_group in zip(
        optimizer._partition_parameters()[rank], local.state_dict()["param_groups"], strict=True
    ):
        first = len(state)
        for parameter in group["params"]:
            state[len(state)] = {
                name: _like(kept, own, parameter) for name, kept in own_state.items()
            }
        groups.append({**own_group, "params": [*range(first, len(state))]})
    return {"state": state, "param_groups": groups}


def _like(kept: Any, own: Any, parameter: torch.Tensor) -> Any:
    if isinstance(kept, torch.Tensor) and kept.shape == own.shape:
        return torch.empty_like(parameter, dtype=kept.dtype)
    return kept
