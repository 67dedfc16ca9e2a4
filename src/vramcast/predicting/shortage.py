"""Where not even the smallest batch fits: what would help, from what the memory is. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from vramcast.records.prediction import Prediction
from vramcast.units import format_bytes

STATES = ("parameters", "gradients", "optimizer_state")
PARAMETERS = (
    "weights in 16 bits take half of 32; "
    "else a smaller model, a larger GPU, or several that share it"
)
STATE = (
    "an optimizer with less state (SGD, Adafactor, 8-bit Adam), weights in 16 bits, "
    "a larger GPU, or several that share it"
)
ACTIVATIONS = "checkpointing, a shorter sequence, a loss taken in chunks, autocast in 16 bits"


def what_would_help(smallest: Prediction, capacity_bytes: int, batch_size: int) -> list[str]:
    """What takes the memory, largest part first, and what makes that smaller."""
    parts = smallest.breakdown_bytes
    parameters, states = parts.get("parameters", 0), sum(parts.get(name, 0) for name in STATES)
    if parameters > capacity_bytes:
        return [f"the parameters alone {_over(parameters, capacity_bytes)}: {PARAMETERS}"]
    if states > capacity_bytes:
        kinds = _listed([name.replace("_", " ") for name in STATES if parts.get(name)])
        too_much = _over(states, capacity_bytes)
        return [f"{kinds} are there whatever the batch and {too_much}: {STATE}"]
    others = sum(parts.get(name, 0) for name in ("activations", "temporaries", "workspaces"))
    return [
        f"with a batch of {batch_size}, activations and temporaries take {format_bytes(others)} "
        f"beside {format_bytes(states)} that stay: {ACTIVATIONS}"
    ]


def _over(size_bytes: int, capacity_bytes: int) -> str:
    more = format_bytes(size_bytes - capacity_bytes)
    return f"take {format_bytes(size_bytes)}, {more} more than there is"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
