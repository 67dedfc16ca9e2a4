"""OD1 (document 004): a recurrent network that writes into a ring of slots at a pointer it moves.

Of a scalar x_t each step:
    e = tanh(W_s x_t);  g_t = GRU_s(e + g_{t-R/2}, g_{t-1})    the sensory ring has R/2 slots
    inp = tanh(W_b g_t)                                        without it: inp = tanh(W_in x_t)
    slots floor(p) + {-2 .. 2} mod R,  w = softmax(-(slot - p)² / 8)
    c = Σ w M[slots];  h_t = GRU(inp + σ(ctx) c, h_{t-1});  M[slots] += w h_t
The pointer, with lerp(a, b, s) = a + s · wrap(b - a) mod R, wrap into [-R/2, R/2):
    target = round(σ(θ_ptr[p]) (R - 1)), its gradient that of the unrounded value
    p' = lerp(lerp(p, p + 1, σ(W_w h)), target, σ(W_j h + θ_gate[p]))
    p'' = lerp(p, p', 1 - σ(W_i h));  Δ = wrap(p'' - p)
    p <- p + σ((|Δ| - softplus(W_d h)) / 0.25) Δ mod R
After the last step: logits = Head(M[floor p] + h), the head that belongs to the pointer's part of
the ring (`out_dim` heads).

Parameters: 2s + 6s(s + 1) + sS + S + 2S + 6S(S + 1) + 4(S + 1) + 2R + heads (256S + 256) + 1, with
slots of S and s = max(8, S // 3).

`ring="dense"` is the form document 004 measured: every step makes a new ring and backward keeps
them all. `ring="sparse"` writes in place and gives the same gradients from the slots' numbers
alone.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vramcast_zoo.language_model import check_positive
from vramcast_zoo.ring import DenseRing, Ring, SparseRing
from vramcast_zoo.training import workload

CLASSES = 256
REACH = 2  # slots on either side of the pointer
NEIGHBOURHOOD = 2 * REACH + 1
TAU = 8.0
DEADZONE_SOFTNESS = 0.25
POINTER_DTYPE = torch.float64
RingName = Literal["sparse", "dense"]


def wrap(delta: Tensor, ring_len: int) -> Tensor:
    """The same difference on the ring, in [-R/2, R/2)."""
    return torch.remainder(delta + ring_len / 2, ring_len) - ring_len / 2


def lerp(a: Tensor, b: Tensor, share: Tensor, ring_len: int) -> Tensor:
    """From a towards b the short way round."""
    return torch.remainder(a + share * wrap(b - a, ring_len), ring_len)


def slot_under(pointer: Tensor, ring_len: int) -> Tensor:
    # A pointer just below 0 becomes exactly R when it is rounded: the number of the slot is taken
    # modulo R again.
    return pointer.detach().floor().long() % ring_len


def neighbourhood(pointer: Tensor, ring_len: int) -> tuple[Tensor, Tensor]:
    """The slots around the pointer and their weights, both [batch, 5]."""
    offset = torch.arange(-REACH, REACH + 1, device=pointer.device)
    fraction = pointer - pointer.detach().floor()
    weight = (-(offset - fraction.unsqueeze(1)).square() / TAU).softmax(-1)
    return (slot_under(pointer, ring_len).unsqueeze(1) + offset) % ring_len, weight


class OD1(nn.Module):
    longest = None

    def __init__(
        self,
        *,
        ring_len: int = 2048,
        slot_dim: int = 256,
        out_dim: int = 1,
        ring: RingName = "sparse",
        sensory: bool = True,
    ) -> None:
        super().__init__()
        check_positive(slot_dim=slot_dim, out_dim=out_dim)
        if ring_len < NEIGHBOURHOOD:
            raise ValueError(
                f"ring_len={ring_len} is shorter than the neighbourhood of {NEIGHBOURHOOD} slots "
                "that is read and written"
            )
        if out_dim > ring_len:
            raise ValueError(
                f"out_dim={out_dim} heads cannot each have a part of a ring of {ring_len} slots"
            )
        self.ring_len, self.slot_dim, self.out_dim, self.ring, self.sensory = (
            ring_len,
            slot_dim,
            out_dim,
            ring,
            sensory,
        )
        sense_dim = max(8, slot_dim // 3)
        self.sense, self.sense_cell = nn.Linear(1, sense_dim), nn.GRUCell(sense_dim, sense_dim)
        self.bridge, self.input = nn.Linear(sense_dim, slot_dim), nn.Linear(1, slot_dim)
        self.cell = nn.GRUCell(slot_dim, slot_dim)
        self.steer = nn.Linear(slot_dim, 4)  # W_j, W_w, W_i, W_d
        self.target_logit, self.gate_logit = (
            nn.Parameter(torch.randn(ring_len)),
            nn.Parameter(torch.zeros(ring_len)),
        )
        self.context_logit = nn.Parameter(torch.tensor(0.2))
        self.heads = nn.Linear(slot_dim, out_dim * CLASSES)

    def forward(self, x: Tensor, start: Tensor | None = None) -> Tensor:
        """x [batch, time, 1], the pointer's start [batch] or random -> logits [batch, 256]."""
        x = x.to(self.input.weight.dtype)
        batch = x.shape[0]
        pointer = (
            torch.rand(batch, device=x.device, dtype=POINTER_DTYPE) * (self.ring_len - 1)
            if start is None
            else start
        )
        ring = self.new_ring(batch, x)
        state = x.new_zeros(batch, self.slot_dim)
        for driven in self.inputs(x):
            slots, weight = neighbourhood(pointer, self.ring_len)
            weight = weight.to(x.dtype).unsqueeze(-1)
            context = (weight * ring.read(slots)).sum(1)
            state = self.cell(driven + self.context_logit.sigmoid() * context, state)
            ring.write(slots, (weight * state.unsqueeze(1)).to(x.dtype))
            pointer = self.move(pointer, state)
        slot = slot_under(pointer, self.ring_len)
        return self.read_out(ring.read_last(slot.unsqueeze(1)).squeeze(1) + state, slot)

    def new_ring(self, batch: int, x: Tensor) -> Ring:
        kind = SparseRing if self.ring == "sparse" else DenseRing
        return kind(x.new_zeros(batch, self.ring_len, self.slot_dim))

    def inputs(self, x: Tensor) -> list[Tensor]:
        """What drives the main cell at each moment."""
        if not self.sensory:
            return [torch.tanh(self.input(moment)) for moment in x.unbind(1)]
        turn, felt = self.ring_len // 2, list[Tensor]()
        before = x.new_zeros(x.shape[0], self.sense_cell.hidden_size)
        for t, moment in enumerate(x.unbind(1)):
            heard = torch.tanh(self.sense(moment))
            before = self.sense_cell(heard + felt[t - turn] if t >= turn else heard, before)
            felt.append(before)
        return [torch.tanh(self.bridge(feeling)) for feeling in felt]

    def move(self, pointer: Tensor, state: Tensor) -> Tensor:
        length, slot = self.ring_len, slot_under(pointer, self.ring_len)
        jump, walk, inertia, deadzone = self.steer(state).to(pointer.dtype).unbind(-1)
        target = self.target_logit[slot].to(pointer.dtype).sigmoid() * (length - 1)
        target = target + (target.round() - target).detach()
        walked = lerp(pointer, pointer + 1, walk.sigmoid(), length)
        wanted = lerp(walked, target, (jump + self.gate_logit[slot]).sigmoid(), length)
        delta = wrap(lerp(pointer, wanted, 1 - inertia.sigmoid(), length) - pointer, length)
        moves = ((delta.abs() - F.softplus(deadzone)) / DEADZONE_SOFTNESS).sigmoid()
        return torch.remainder(pointer + moves * delta, length)

    def read_out(self, x: Tensor, slot: Tensor) -> Tensor:
        logits = self.heads(x).unflatten(-1, (self.out_dim, CLASSES))
        head = slot * self.out_dim // self.ring_len
        return logits[torch.arange(len(slot), device=slot.device), head]

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        logits = self(x)
        return F.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), targets)

    def random_batch(self, batch_size: int, seq_len: int, device: str) -> tuple[Tensor, Tensor]:
        return torch.randn(batch_size, seq_len, 1, device=device), torch.randint(
            CLASSES, (batch_size,), device=device
        )


make_model = OD1
build = workload(make_model, batch_size=4, seq_len=128, precision="fp32", lr=1e-3, clip=0.0)
