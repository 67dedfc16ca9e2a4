"""What a real gpu refuses is refused, and masks have their values: run by test_device_programs.py.

python tests/simulate/error_programs.py
"""

from __future__ import annotations

from program_device import run_programs

# isort: split
# the device is loaded before torch
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HOST, PLACES = torch.zeros(4, 4), torch.zeros(4, 4, dtype=torch.long)


def _error(call: Callable[[], object]) -> str:
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return ""


def a_batch_that_was_left_on_the_host_is_an_error() -> None:
    layers = nn.Linear(4, 4), nn.LayerNorm(4), nn.BatchNorm1d(4), nn.Embedding(4, 4)
    for layer in layers:
        batch = PLACES if isinstance(layer, nn.Embedding) else HOST
        assert "on the same device" in _error(lambda layer=layer, x=batch: layer.cuda()(x)), layer


def a_model_that_was_left_on_the_host_is_an_error() -> None:
    for layer in (nn.Linear(4, 4), nn.LayerNorm(4), nn.BatchNorm1d(4)):
        assert "on the same device" in _error(lambda layer=layer: layer(HOST.cuda())), layer


def operators_want_all_their_tensors_on_one_device() -> None:
    gpu = HOST.cuda()
    batches = gpu[None], HOST[None]
    calls: tuple[Callable[[], Tensor], ...] = (
        lambda: gpu + HOST,
        lambda: HOST * gpu,
        lambda: gpu @ HOST,
        lambda: torch.bmm(*batches),
        lambda: torch.cat([gpu, HOST]),
        lambda: torch.where(gpu > 0, gpu, HOST),
        lambda: gpu.gather(1, PLACES),
        lambda: gpu.masked_fill(HOST > 0, 1.0),
        lambda: F.cross_entropy(gpu, PLACES[0]),
        lambda: F.mse_loss(gpu, HOST),
    )
    for number, call in enumerate(calls):
        assert "on the same device" in _error(call), number


def numbers_positions_and_copies_of_the_host_are_taken() -> None:
    model, gpu = nn.LSTM(4, 4).cuda(), HOST.cuda()
    lengths = torch.tensor([4, 2])
    packed = nn.utils.rnn.pack_padded_sequence(torch.zeros(4, 2, 4, device="cuda"), lengths)
    nn.utils.rnn.pad_packed_sequence(model(packed)[0])
    gpu + torch.tensor(1.0)
    torch.where(gpu > 0, gpu, torch.tensor(0.0))
    gpu[PLACES[0]]
    gpu.clone()[PLACES[0]] = 1.0
    gpu.clone().copy_(HOST)
    probabilities = torch.zeros(4, 2, 8, device="cuda", requires_grad=True).log_softmax(2)
    F.ctc_loss(probabilities, torch.ones(2, 2, dtype=torch.long), lengths, lengths // 2)
    torch._foreach_copy_([gpu.clone()], [HOST])
    torch.tensor_split(gpu, torch.tensor([1, 2]))


def a_number_that_half_precision_cannot_hold_is_an_error() -> None:
    half = HOST.cuda().half()
    assert "without overflow" in _error(lambda: half.masked_fill(half > 0, -1e9))
    assert "without overflow" in _error(lambda: half.fill_(1e9))
    half.masked_fill(half > 0, float("-inf")).fill_(-1e4)


def a_mask_of_bytes_is_an_error() -> None:
    gpu = HOST.cuda()
    mask = torch.ones_like(gpu, dtype=torch.uint8)
    for fill in (gpu.masked_fill, gpu.masked_fill_):
        assert "masked_fill only supports boolean masks, but got dtype Byte" in _error(
            lambda fill=fill: fill(mask, 0.0)
        )
    gpu.masked_fill(mask.bool(), 0.0)


def a_large_mask_of_which_nothing_is_padded_is_known() -> None:
    """Longformer and LED look whether a token attends to all others."""
    mask = torch.ones(8, 512, device="cuda", dtype=torch.long)
    inverted = 1.0 - mask[:, None, None, :].expand(8, 1, 512, 512).to(torch.float32)
    added = inverted.masked_fill(inverted.bool(), torch.finfo(torch.float32).min) * inverted
    assert not (added[:, 0, 0, :] > 0).any().item()
    allowed = torch.ones(8, 1, 512, 512, device="cuda", dtype=torch.bool)
    chosen = torch.where(allowed, torch.tensor(0.0, device="cuda"), torch.finfo(torch.float32).min)
    chosen[:, 0, 0, :][mask == 2] = torch.finfo(torch.float32).max
    assert not (chosen > 0).any().item()


def a_gradient_that_needs_what_an_optimizer_has_changed_is_refused() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    first, second = (model(torch.zeros(4, 16, device="cuda")).sum() for _ in range(2))
    first.backward()
    optimizer.step()
    try:
        second.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        raise AssertionError("a gradient was computed from weights that are no more")


if __name__ == "__main__":
    run_programs()
