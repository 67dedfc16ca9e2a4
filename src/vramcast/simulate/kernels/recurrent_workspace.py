"""cuDNN's memory for nn.LSTM, nn.GRU and nn.RNN in training. No torch.

Deduced from networks measured on an H200 (cuDNN 9.19): fp32, bf16 and fp16, one and two directions,
one to five layers, with and without dropout. See benchmarks/libraries.
"""

from dataclasses import dataclass

from vramcast.allocator.blocks import last_power_of_two

MIB = 1 << 20
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
# activations kept for the backward pass, per hidden unit, step and layer
KEPT_ACTIVATIONS = {"RNN": 1, "GRU": 6, "LSTM": 5}
# for packed samples, per layer, in one direction: the states beside the gates, and beside the
# results
PACKED_STATES = {"RNN": (1, 1), "GRU": (3, 1), "LSTM": (6, 3)}
MOST_STEPS_OF_GATES = 256  # at a time, in one direction
# Up to this hidden size (forward, backward) torch asks for the kernel that keeps its weights on
# chip. cuDNN has it for fp32 and fp16.
MAX_SMALL_HIDDEN = {"RNN": (384, 256), "GRU": (192, 128), "LSTM": (192, 128)}
# states of that kernel per step, without and with gradients
SMALL_STATES = {"RNN": (4, 9), "GRU": (12, 14), "LSTM": (16, 16)}


@dataclass(frozen=True, kw_only=True)
class Recurrent:
    kind: str
    item_bytes: int
    input_size: int
    hidden: int
    layers: int
    batch: int
    steps: int
    all_steps: int  # the steps of all samples together; packed samples have different lengths
    directions: int
    projection: int = 0  # the width of results and hidden states, if they are projected
    dropout: bool = False  # between layers
    is_half: bool = False  # fp16; cuDNN has other kernels for bf16
    is_packed: bool = False
    is_training: bool = True

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
        """The bytes of one feature at every step of every sample."""
        return self.all_steps * self.item_bytes

    @property
    def is_persistent(self) -> bool:
        """Whether torch asks for weights on chip although they are larger: in fp16, for one layer
        of these sizes."""
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
        """The state buffers of each layer: h and its gradient, for an LSTM also c and its
        gradient."""
        if self.is_bidirectional:
            return 24 if self.kind == "LSTM" else 14
        return 10 if self.kind == "LSTM" else 5


def reserve_bytes(r: Recurrent) -> int:
    """The memory kept for the backward pass: activations, and what layers pass to each other."""
    between = r.layers - 1
    num_results = KEPT_ACTIVATIONS[r.kind] * r.layers + between
    width = r.projection or r.hidden
    mask_bits = r.steps * r.batch * width * r.directions**2 * between if r.dropout else 0
    features = num_results * r.result_width
    if r.projection:
        features += r.layers * (r.result_width + r.projection * r.directions)
    return features * r.feature_bytes + 256 + mask_bits // 8


def workspace_bytes(r: Recurrent, *, backward: bool) -> int:
    """The workspace of one call. Forward pass, data gradient and weight gradient are a call
    each."""
    # a matrix product's workspace for each layer and direction
    total = 8 * MIB * r.layers * r.directions
    width = r.projection or r.hidden
    weight_columns = r.input_size + width + (r.layers - 1) * (r.directions + 1) * width
    columns = r.gates * weight_columns + r.projection * r.layers
    total += r.result_width * columns * r.item_bytes + 256
    if r.is_packed:
        return total + _packed_elements(r) * r.item_bytes
    total += 8 * r.batch  # lengths
    if r.projection:
        return total + _projected_bytes(r)
    is_small = r.is_persistent or (
        (r.item_bytes == 4 or r.is_half) and r.hidden <= MAX_SMALL_HIDDEN[r.kind][backward]
    )
    # two phases that share memory; without gradients there is the first only
    total += max(_gates_bytes(r, is_small), _results_bytes(r, is_small) if r.is_training else 0)
    if is_small:
        num_states = SMALL_STATES[r.kind][r.is_training] * r.steps
        total += (num_states + (2 - r.directions) * r.layers) * r.state_bytes
    return total


def _projected_bytes(r: Recurrent) -> int:
    """The rest of the workspace where results are projected: two states of each direction are
    smaller."""
    features = r.input_size + r.projection * r.directions
    features += (r.gates + (3 if r.is_bidirectional else 1)) * r.result_width
    states = (r.num_states - 2 * r.directions) * r.hidden + 2 * r.directions * r.projection
    states *= r.layers * r.batch
    return features * r.feature_bytes + (states + _dropout_elements(r)) * r.item_bytes


def _packed_elements(r: Recurrent) -> int:
    """The elements for packed samples, which are not copied into another layout. They have the same
    two phases."""
    gate_states, result_states = (n + 2 * r.is_bidirectional for n in PACKED_STATES[r.kind])
    states = r.layers * r.batch * r.result_width
    if r.is_bidirectional:
        gates = (r.gates + 2) * r.all_steps * r.result_width
        passed = (1 + (r.layers > 1)) * r.all_steps * r.result_width
        passed += r.all_steps * max(4 * r.input_size, 2 * r.result_width)
    else:
        gates = r.gates * min(r.all_steps, MOST_STEPS_OF_GATES * r.batch) * r.hidden
        passed = min(r.all_steps, _passed_steps(r) * r.batch) * r.hidden
        passed += r.all_steps * max(r.input_size, r.hidden)
    if r.projection:  # deduced from one recording
        gates += r.all_steps * r.result_width
    gates += gate_states * states + _dropout_elements(r)
    return max(gates, passed + result_states * states) if r.is_training else gates


def _dropout_elements(r: Recurrent) -> int:
    """The elements of the input of dropout, which is kept with one direction only."""
    is_there = r.dropout and r.is_training and r.layers > 1 and not r.is_bidirectional
    return is_there * r.all_steps * r.hidden


def _passed_steps(r: Recurrent) -> int:
    """The steps whose results are kept between layers: with one direction, layers pass them on in
    chunks."""
    if r.layers == 1:
        return r.steps
    chunk = max(8 if r.steps >= 128 else 4, min(16, last_power_of_two(128 // r.batch)))
    return min(r.steps, r.layers * chunk + max(8, chunk))


def _gates_bytes(r: Recurrent, is_small: bool) -> int:
    """The first phase: all gates of one layer, its result and its input. With two directions, two
    more results."""
    steps = r.steps if is_small or r.is_bidirectional else min(r.steps, MOST_STEPS_OF_GATES)
    total = r.gates * steps * r.directions * r.state_bytes
    total += r.feature_bytes * ((3 if r.is_bidirectional else 1) * r.result_width + r.input_size)
    num_states, is_lstm = r.num_states, r.kind == "LSTM"
    if is_small and is_lstm:
        num_states -= 3 * r.directions
    if not r.is_training and (r.kind == "RNN" or is_small and not is_lstm):
        num_states -= 2 * r.directions
    beside = _dropout_elements(r) * r.item_bytes
    if r.is_training and not r.is_bidirectional and not (is_small and is_lstm):
        beside = max(beside, max(0, r.input_size - r.hidden) * r.feature_bytes)
    return total + num_states * r.layers * r.state_bytes + beside


def _results_bytes(r: Recurrent, is_small: bool) -> int:
    """The second phase: inputs with their gradients, and results, which layers pass on whole or in
    chunks."""
    is_small_lstm = is_small and r.kind == "LSTM"
    num_results = 5 if r.is_bidirectional else 0 if is_small_lstm else 4
    wider = max(0, r.input_size - (r.result_width if is_small_lstm else r.hidden))
    features = 2 * r.input_size + num_results * r.result_width + wider * r.directions**2
    num_states = r.num_states + (r.kind == "LSTM") * r.directions
    total = r.feature_bytes * features + num_states * r.layers * r.state_bytes
    if r.layers > 1 and (r.is_bidirectional or is_small):
        return total + r.feature_bytes * r.result_width
    return total + (_passed_steps(r) - r.steps) * r.state_bytes
