"""cuDNN's memory for nn.LSTM, nn.GRU and nn.RNN in training. No torch.

Deduced from 340 networks measured on an H200 (cuDNN 9.19), and exact on all: fp32, bf16, some fp16,
one and two directions, one to three layers, with and without dropout.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
# for the backward pass, per hidden unit, step and layer
KEPT_ACTIVATIONS = {"RNN": 1, "GRU": 6, "LSTM": 5}
# Up to this hidden size, forward and backward, torch asks for the kernel that keeps its weights on
# chip; cuDNN has it for fp32 and fp16.
MAX_SMALL_HIDDEN = {"RNN": (384, 256), "GRU": (192, 128), "LSTM": (192, 128)}


@dataclass(frozen=True, kw_only=True)
class Recurrent:
    kind: str
    item_bytes: int
    input_size: int
    hidden: int
    layers: int
    batch: int
    steps: int
    all_steps: int  # of all samples together; packed samples have lengths of their own
    directions: int
    dropout: bool = False  # between layers
    is_half: bool = False  # fp16; cuDNN has other kernels for bf16

    @property
    def gates(self) -> int:
        return GATES[self.kind]

    @property
    def is_bidirectional(self) -> bool:
        return self.directions == 2

    @property
    def result_width(self) -> int:
        return self.hidden * self.directions

    @property
    def state_bytes(self) -> int:
        return self.batch * self.hidden * self.item_bytes

    @property
    def feature_bytes(self) -> int:
        """One feature at every step of every sample."""
        return self.all_steps * self.item_bytes

    @property
    def is_persistent(self) -> bool:
        """In fp16 torch asks for weights on chip for one layer of these sizes too."""
        return (
            self.is_half
            and self.kind != "GRU"
            and self.layers == 1
            and not self.is_bidirectional
            and self.hidden <= 1024
            and self.hidden % 128 == 0
            and self.input_size % 128 == 0
            and self.batch % 8 == 0
            and self.batch <= 128
        )

    @property
    def num_states(self) -> int:
        """State buffers of each layer: h and its gradient, for an LSTM also c and its."""
        if self.is_bidirectional:
            return 24 if self.kind == "LSTM" else 14
        return 10 if self.kind == "LSTM" else 5


def reserve_bytes(r: Recurrent) -> int:
    """Kept for the backward pass: activations, and what passes between layers."""
    between = r.layers - 1
    num_results = KEPT_ACTIVATIONS[r.kind] * r.layers + between
    mask_bits = r.all_steps * r.result_width * r.directions * between if r.dropout else 0
    return num_results * r.feature_bytes * r.result_width + 256 + mask_bits // 8


def workspace_bytes(r: Recurrent, *, backward: bool) -> int:
    """Forward pass, data gradient and weight gradient take one each."""
    # a matrix product's workspace for each layer and direction
    total = 8 * MIB * r.layers * r.directions
    weight_columns = r.input_size + r.hidden + (r.layers - 1) * (r.result_width + r.hidden)
    total += r.gates * r.result_width * weight_columns * r.item_bytes
    total += 256 + 8 * r.batch  # lengths
    # an input wider than the state needs wider buffers
    wider = max(0, r.input_size - r.hidden) * r.directions
    total += wider * (r.all_steps + r.is_bidirectional * r.batch) * r.item_bytes
    is_small = r.is_persistent or (
        (r.item_bytes == 4 or r.is_half) and r.hidden <= MAX_SMALL_HIDDEN[r.kind][backward]
    )
    if is_small and r.kind == "LSTM":
        num_states = 16 * r.steps - (6 if r.is_bidirectional else 2) * r.layers
        return total + _gates_bytes(r) + num_states * r.state_bytes
    # two phases that share memory
    total += max(_gates_bytes(r), _results_bytes(r, is_small))
    if r.dropout and r.layers > 1 and not r.is_bidirectional:
        total += r.feature_bytes * r.result_width  # the input of dropout
    if is_small:
        num_states = (9 if r.kind == "RNN" else 14) * r.steps
        total += (num_states + (0 if r.is_bidirectional else r.layers)) * r.state_bytes
    return total


def _gates_bytes(r: Recurrent) -> int:
    """All gates of one layer, its result and its input; with two directions two more results."""
    num_results = r.gates + (3 if r.is_bidirectional else 1)
    num_features = num_results * r.result_width + r.input_size
    return r.feature_bytes * num_features + r.num_states * r.layers * r.state_bytes


def _results_bytes(r: Recurrent, is_small: bool) -> int:
    """Inputs with their gradients, and results, passed on between layers whole or in chunks."""
    num_results = 5 if r.is_bidirectional else 4
    total = r.feature_bytes * (2 * r.input_size + num_results * r.result_width)
    if r.layers > 1 and (r.is_bidirectional or is_small):
        total += r.feature_bytes * r.result_width
    elif r.layers > 1:
        chunk = max(8 if r.steps >= 128 else 4, min(16, _power_of_two_below(128 // r.batch)))
        passed = min(r.steps, r.layers * chunk + max(8, chunk))
        total += (passed - r.steps) * r.batch * r.item_bytes * r.result_width
    num_states = r.num_states + (r.kind == "LSTM" and not r.is_bidirectional)
    return total + num_states * r.layers * r.state_bytes


def _power_of_two_below(number: int) -> int:
    return 1 << number.bit_length() >> 1
