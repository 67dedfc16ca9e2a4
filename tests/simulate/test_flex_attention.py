"""FlexAttention's kernels take time by the blocks of scores that their mask leaves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vramcast.simulate.block_masks import NotKnown, num_blocks_left
from vramcast.simulate.flex_attention import (
    UNKNOWN_MASK,
    Scores,
    flex_attention_work,
    is_flex_attention,
)

WINDOW = 512
SOURCE = """
def triton_tem_fused_flex_attention_0(arg_V, arg_KV_NUM_BLKS, ks0):
    QK_HEAD_DIM : tl.constexpr = 64
    V_HEAD_DIM : tl.constexpr = 64
    SPARSE_Q_BLOCK_SIZE : tl.constexpr = 128
    SPARSE_KV_BLOCK_SIZE : tl.constexpr = 128
    Q = arg_V
    K = arg_V + 4096
    V = arg_V
    KV_NUM_BLKS = arg_KV_NUM_BLKS
    ZQ = 2
    HQ = 8
    Q_LEN = ks0
    KV_LEN = 1024
    Q = Q + q_offset
"""


class Library:
    """Knows what no tensor contains."""

    def vramcast_enable(self, enabled: bool) -> None: ...

    def vramcast_copy_known(self, tensor: int, host: int) -> bool:
        return False


class Device:
    library = Library()


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def in_window(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q >= k) & (q - k < WINDOW)


def both(one: Any, other: Any) -> Any:
    return lambda *places: one(*places) & other(*places)


def in_documents(length: int) -> Any:
    document = torch.arange(length) // 1000
    return lambda b, h, q, k: (q >= k) & (document[q] == document[k])


def every_block(mask: Any, length: int) -> int:
    """From all scores, as torch counts them."""
    place = torch.arange(length)
    seen = mask(0, 0, place[:, None], place[None])
    number = length // 128
    return int(seen.view(number, 128, number, 128).any(3).any(1).sum())


@pytest.mark.parametrize("length", [512, 4096])
@pytest.mark.parametrize("kind", ["causal", "window", "documents", "two masks"])
def test_a_few_scores_of_each_block_tell_how_many_are_left(kind: str, length: int) -> None:
    masks = {
        "causal": causal,
        "window": in_window,
        "documents": in_documents(length),
        "two masks": both(causal, in_window),
    }
    found = num_blocks_left(masks[kind], (1, 1, length, length), (128, 128), Device())  # type: ignore[arg-type]
    assert found == every_block(masks[kind], length)


def test_functions_that_use_each_other_are_copied_once() -> None:
    def seen(b: Any, h: Any, q: Any, k: Any, again: bool = True) -> Any:
        return other(b, h, q, k) if again else q >= k

    def other(*places: Any) -> Any:
        return seen(*places, again=False)

    found = num_blocks_left(seen, (1, 1, 512, 512), (128, 128), Device())  # type: ignore[arg-type]
    assert found == every_block(causal, 512)


def test_heads_with_masks_of_their_own_are_counted_in_the_mean() -> None:
    def by_head(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) | (h == 1)

    found = num_blocks_left(by_head, (1, 2, 256, 256), (128, 128), Device())  # type: ignore[arg-type]
    assert found == (3 + 4) / 2


def test_a_mask_of_something_that_is_not_known_is_not_guessed() -> None:
    class OnGpu(torch.Tensor):
        is_cuda = True

    document = torch.zeros(256).as_subclass(OnGpu)
    with pytest.raises(NotKnown):
        num_blocks_left(
            lambda b, h, q, k: document[q] == document[k],
            *((1, 1, 256, 256), (128, 128)),
            Device(),  # type: ignore[arg-type]
        )


@pytest.mark.parametrize(
    ("left", "computed"), [({}, 512 * 1024 / 2), ({7: 10.0}, 10 * 128 * 128)], ids=["not", "known"]
)
def test_work_is_read_off_the_kernels_source(left: dict[int, float], computed: float) -> None:
    class Counts:
        @staticmethod
        def data_ptr() -> int:
            return 7

        @staticmethod
        def numel() -> int:
            return 4

    tensor = torch.zeros(2, 8, 1024, 64, dtype=torch.bfloat16)
    arguments = tensor, Counts(), 512
    function = SimpleNamespace(src=SOURCE, arg_names=("arg_V", "arg_KV_NUM_BLKS", "ks0"))
    assert is_flex_attention(SOURCE)
    notes: list[str] = []
    gpu: Any = SimpleNamespace(blocks_left=left, note=notes.append)
    name, _, flops, num_bytes, sizes = (
        flex_attention_work(function, arguments, gpu) or pytest.fail()
    )
    assert notes == ([] if left else [UNKNOWN_MASK])
    assert name == b"inductor::flex_attention"
    assert flops == 4.0 * 16 * computed * 64
    assert sizes[3] == Scores(16, computed, 64, 0, 512 * 128).cost(is_backward=False) > flops
    assert num_bytes == 2 * 2 * 16 * 64 * (512 + 2 * 1024)


def test_sizes_that_the_kernel_works_out_are_not_known() -> None:
    source = SOURCE.replace("Q_LEN = ks0", "Q_LEN = 2*ks0")
    function = SimpleNamespace(src=source, arg_names=("arg_V",))
    assert flex_attention_work(function, (torch.zeros(1),), None) is None  # type: ignore[arg-type]
