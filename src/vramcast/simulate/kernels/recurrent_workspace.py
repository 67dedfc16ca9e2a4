"""cuDNN's memory for nn.LSTM, nn.GRU and nn.RNN in training, deduced from 340 measured on an H200 (cuDNN 9.19) and exact on all of them.

Measured were fp32, bf16 and some fp16, one and two directions, one to three layers, with and without dropout. No torch.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
KEPT = {
    "RNN": 1,
    "GRU": 6,
    "LSTM": 5,
}  # activations a layer keeps for the backward pass, per hidden unit and step
# up to this hidden size torch asks for the kernel that keeps its weights on chip; cuDNN has it for fp32 and fp16
SMALL_HIDDEN = {"RNN": (384, 256), "GRU": (192, 128), "LSTM": (192, 128)}  # forward, backward


@dataclass(frozen=True, kw_only=True)
class Recurrent:
    kind: str
    item_bytes: int
    input_size: int
    hidden: int
    layers: int
    batch: int
    steps: int
    directions: int
    dropout: bool = False  # between layers
    is_half: bool = False  # fp16; cuDNN has other kernels for bf16

    @property
    def gates(self) -> int:
        return GATES[self.kind]

    @property
    def both(self) -> bool:
        return self.directions == 2

    @property
    def result_width(self) -> int:
        return self.hidden * self.directions

    @property
    def state_bytes(self) -> int:
        return self.batch * self.hidden * self.item_bytes

    @property
    def row_bytes(self) -> int:
        """One feature at every step of every sample."""
        return self.steps * self.batch * self.item_bytes


def reserve_bytes(r: Recurrent) -> int:
    """Kept from the forward to the backward pass: each layer's activations, and what passes between layers."""
    mask = (
        r.steps * r.batch * r.result_width * r.directions * (r.layers - 1) // 8 if r.dropout else 0
    )  # a bit each
    return (KEPT[r.kind] * r.layers + r.layers - 1) * r.row_bytes * r.result_width + mask + 256


def workspace_bytes(r: Recurrent, *, backward: bool) -> int:
    """Of one call: the forward pass, the data gradient and the weight gradient take one each."""
    library = (
        8 * MIB * r.layers * r.directions
    )  # a matrix product's workspace for each layer and direction
    weights = (
        r.gates
        * r.result_width
        * r.item_bytes
        * (r.input_size + r.hidden + (r.layers - 1) * (r.result_width + r.hidden))
    )
    lengths = 256 + 8 * r.batch
    small = (
        is_persistent(r)
        or (r.item_bytes == 4 or r.is_half)
        and r.hidden <= SMALL_HIDDEN[r.kind][1 if backward else 0]
    )
    gates, results = _gates_bytes(r), _results_bytes(r, small)
    # an input wider than the state needs wider buffers
    wider = (
        max(0, r.input_size - r.hidden) * r.directions * (r.steps + r.both) * r.batch * r.item_bytes
    )
    if small and r.kind == "LSTM":
        return (
            library
            + weights
            + lengths
            + wider
            + gates
            + (16 * r.steps - (6 if r.both else 2) * r.layers) * r.state_bytes
        )
    # two phases that share memory
    total = library + weights + lengths + wider + max(gates, results)
    if r.dropout and r.layers > 1 and not r.both:
        total += r.row_bytes * r.result_width  # what was dropped out of, whole
    if small:
        total += (
            (9 if r.kind == "RNN" else 14) * r.steps + (0 if r.both else r.layers)
        ) * r.state_bytes
    return total


def is_persistent(r: Recurrent) -> bool:
    """torch asks for the kernel whose weights stay on chip also in fp16, for one layer of fitting sizes."""
    fits = (
        r.hidden <= 1024
        and r.hidden % 128 == 0
        and r.input_size % 128 == 0
        and r.batch % 8 == 0
        and r.batch <= 128
    )
    return r.is_half and r.kind != "GRU" and r.layers == 1 and not r.both and fits


def _num_states(r: Recurrent) -> int:
    """State buffers of each layer: h and its gradient, for an LSTM also c and its."""
    if r.both:
        return 24 if r.kind == "LSTM" else 14
    return 10 if r.kind == "LSTM" else 5


def _gates_bytes(r: Recurrent) -> int:
    """All gates of one layer, its result and its input; with two directions two more results."""
    return (
        r.row_bytes * ((r.gates + 1 + 2 * r.both) * r.result_width + r.input_size)
        + _num_states(r) * r.layers * r.state_bytes
    )


def _results_bytes(r: Recurrent, small: bool) -> int:
    """Inputs with their gradients and the results; between layers a result is passed on, whole or in chunks of steps, as a wave."""
    total = r.row_bytes * (2 * r.input_size + (4 + r.both) * r.result_width)
    if r.layers > 1 and (r.both or small):
        total += r.row_bytes * r.result_width
    elif r.layers > 1:
        chunk = max(8 if r.steps >= 128 else 4, min(16, _power_of_two_below(128 // r.batch)))
        passed = min(r.steps, r.layers * chunk + max(8, chunk))
        total += (passed - r.steps) * r.batch * r.item_bytes * r.result_width
    return total + (_num_states(r) + (r.kind == "LSTM" and not r.both)) * r.layers * r.state_bytes


def _power_of_two_below(number: int) -> int:
    return 1 << number.bit_length() >> 1
