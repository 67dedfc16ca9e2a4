"""A loss taken in parts is the same loss, with the same gradients, and takes less memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vramcast
from vramcast_zoo.yxanul import Yxanul

pytestmark = pytest.mark.usefixtures("warm_simulations")
SMALL = {
    "dim": 64,
    "depth": 1,
    "kv_heads": 1,
    "hidden": 96,
    "vocabulary": 211,
    "embedding_rank": 32,
}


def loss_and_gradients(
    tied: bool, chunks: int, batch_size: int, seq_len: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = Yxanul(**SMALL, tied=tied, loss_chunks=chunks).double()  # type: ignore[arg-type]
    loss = model.loss(*model.random_batch(batch_size, seq_len, "cpu"))
    loss.backward()
    return loss.detach(), [
        parameter.grad for parameter in model.parameters() if parameter.grad is not None
    ]


@settings(max_examples=15)
@given(st.booleans(), st.integers(1, 40), st.integers(1, 4), st.integers(1, 12))
def test_the_loss_in_chunks_and_its_gradients_are_those_of_the_whole(
    tied: bool, chunks: int, batch_size: int, seq_len: int
) -> None:
    whole, gradients = loss_and_gradients(tied, 1, batch_size, seq_len)
    parts, gradients_of_parts = loss_and_gradients(tied, chunks, batch_size, seq_len)
    assert torch.allclose(parts.double(), whole, rtol=1e-6)
    assert len(gradients) == len(gradients_of_parts)
    assert all(
        torch.allclose(a, b, rtol=1e-6, atol=1e-9)
        for a, b in zip(gradients, gradients_of_parts, strict=True)
    )


def test_no_chunks_are_refused() -> None:
    with pytest.raises(ValueError, match="loss_chunks=0 must be above zero"):
        Yxanul(**SMALL, loss_chunks=0)  # type: ignore[arg-type]


def test_a_chunked_loss_takes_less_than_half_the_memory_where_logits_dominate() -> None:
    knobs = {"depth": 2, "batch_size": 4, "seq_len": 512, "gpu": "h200"}
    whole = vramcast.predict("yxanul-197m", **knobs)
    parts = vramcast.predict("yxanul-197m", loss_chunks=16, **knobs)
    assert parts.num_parameters == whole.num_parameters
    assert parts.peak_reserved_bytes < whole.peak_reserved_bytes / 2
