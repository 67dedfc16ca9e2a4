"""Every model learns; what cannot be built says why; every knob is what it says."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from long_tests import long_unless
from torch import Tensor, nn

from vramcast_zoo import e1, e5, e10, mamba2, training
from vramcast_zoo.elleci import Elleci
from vramcast_zoo.fp8 import Fp8Linear
from vramcast_zoo.gpt2 import GPT2
from vramcast_zoo.language_model import shifted
from vramcast_zoo.llama import Llama
from vramcast_zoo.od1 import OD1
from vramcast_zoo.parallel import join_processes
from vramcast_zoo.training import make_optimizer, training_step, with_defaults, workload
from vramcast_zoo.yxanul import Yxanul

CORPUS = torch.tensor(list(Path(argparse.__file__).read_bytes()))  # 100 KB of Python
STEPS, BELOW = 40, 2.75
# A model that knows nothing loses ln 256 = 5.55; one that knows how frequent each byte is, 2.94.
# What follows needs the bytes before.
LADDER = {"dim": 64, "depth": 2}
YXANUL = {**LADDER, "kv_heads": 1, "hidden": 128, "vocabulary": 256, "embedding_rank": 32}
LEARNERS: dict[str, Callable[[], nn.Module]] = {
    "e1": lambda: e1.make_model(**LADDER),
    "e5": lambda: e5.make_model(**LADDER, rank=32),
    "e10": lambda: e10.make_model(**LADDER),
    "mamba2": lambda: mamba2.make_model(**LADDER, state=16),
    "gpt2": lambda: GPT2(**LADDER, heads=4, vocabulary=256, positions=32),
    "llama": lambda: Llama(**LADDER, heads=4, kv_heads=2, hidden=128, vocabulary=256),
    "yxanul": lambda: Yxanul(**YXANUL),
    "yxanul-fp8": lambda: Yxanul(**YXANUL, tied=False, linear="fp8"),
    "elleci": lambda: Elleci(**LADDER, heads=2, vocabulary=256, positions=32, checkpointing=False),
}


def windows(length: int, batch_size: int, generator: torch.Generator) -> Tensor:
    starts = torch.randint(len(CORPUS) - length, (batch_size,), generator=generator)
    return torch.stack([CORPUS[start : start + length] for start in starts.tolist()])


def trained(
    model: nn.Module, next_batch: Callable[[], tuple[Tensor, Tensor]], lr: float, steps: int
) -> float:
    """The mean loss of the last ten steps."""
    step = training_step(
        model, next_batch, precision="fp32", optimizer="adamw", lr=lr, clip=1.0, device="cpu"
    )  # type: ignore[arg-type]
    losses = [step().item() for _ in range(steps)]
    assert losses[0] > 5
    return sum(losses[-10:]) / 10


@pytest.mark.parametrize("name", long_unless("gpt2".__eq__, LEARNERS))
def test_a_language_model_learns_bytes_of_python_within_40_steps(name: str) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    assert (
        trained(LEARNERS[name](), lambda: shifted(windows(33, 16, generator)), 3e-3, STEPS) < BELOW
    )


def test_od1_learns_the_next_byte_from_eight_bytes_as_numbers_within_50_steps() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)

    def next_batch() -> tuple[Tensor, Tensor]:
        window = windows(9, 64, generator)
        return window[:, :-1, None] / 64 - 1.0, window[:, -1]

    assert trained(OD1(ring_len=16, slot_dim=32), next_batch, 1e-2, 50) < 2.85


# ----------------------------------------------------------------------------- bad configurations
BAD: dict[str, tuple[Callable[[], object], str]] = {
    "document 003's twelve heads": (
        lambda: Elleci(dim=2048, heads=12),
        "heads=12 does not divide dim=2048",
    ),
    "heads in GPT-2": (lambda: GPT2(dim=768, heads=7), "heads=7 does not divide dim=768"),
    "heads in the Llama-style model": (
        lambda: Llama(dim=1024, heads=10),
        "heads=10 does not divide dim=1024",
    ),
    "groups of heads": (lambda: Llama(heads=16, kv_heads=5), "kv_heads=5 does not divide heads=16"),
    "no heads": (lambda: GPT2(dim=768, heads=0), "heads=0 does not divide"),
    "heads too narrow for positions": (lambda: Elleci(dim=64, heads=4), "positions alone take 32"),
    "odd heads": (lambda: Llama(dim=48, heads=16, kv_heads=16), "does not divide dim / heads=3"),
    "rank above dim": (
        lambda: e5.make_model(dim=64, rank=65),
        "rank=65 is not between 1 and dim=64",
    ),
    "no rank": (lambda: e5.make_model(dim=64, rank=0), "rank=0 is not between 1 and dim=64"),
    "rank of the embedding": (
        lambda: Yxanul(embedding_rank=1000),
        "embedding_rank=1000 is not between 1 and dim=768",
    ),
    "width of Mamba-2": (
        lambda: mamba2.make_model(dim=100),
        "64 does not divide the inner width 2·dim=200",
    ),
    "width of Yxanul": (lambda: Yxanul(dim=100), "64 does not divide dim=100"),
    "widths of 8-bit products": (lambda: Fp8Linear(24, 32), "multiples of 16, not 24 and 32"),
    "a short ring": (
        lambda: OD1(ring_len=4),
        "ring_len=4 is shorter than the neighbourhood of 5 slots",
    ),
    "more heads than slots": (lambda: OD1(ring_len=8, out_dim=9), "out_dim=9 heads"),
    "no depth": (lambda: e1.make_model(depth=0), "depth=0 must be above zero"),
    "no banks": (lambda: e10.make_model(banks=0), "banks=0 must be above zero"),
    "nothing inside": (lambda: e1.make_model(dim=4, expansion=0.1), "inner=0 must be above zero"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_built_is_refused_at_construction(case: str) -> None:
    make, message = BAD[case]
    with torch.device("meta"), pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("model", [GPT2, Elleci])
def test_a_sequence_longer_than_the_learned_positions_is_refused(
    model: type[GPT2], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "DEVICE", "cpu")
    sizes = {"dim": 64, "depth": 1, "heads": 2, "vocabulary": 16, "positions": 8}
    message = "a sequence of 9 tokens is longer than the 8 positions"
    with pytest.raises(ValueError, match=message):
        workload(model)(**sizes, batch_size=1, seq_len=9)
    with pytest.raises(ValueError, match=message):
        model(**sizes)(torch.zeros(1, 9, dtype=torch.long))
    workload(model)(**sizes, batch_size=1, seq_len=8, precision="fp32")()


# ------------------------------------------------------------------------------------------ knobs
def test_the_same_seed_gives_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "DEVICE", "cpu")
    losses = [
        e1.build(dim=8, depth=1, batch_size=2, seq_len=4, precision="fp32", seed=seed)().item()
        for seed in (1, 1, 2)
    ]
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.filterwarnings(
    "ignore:mkldnn_matmul failed"
)  # a CPU that multiplies no halves does it more slowly
@pytest.mark.parametrize("optimizer", ["adamw", "adamw-fused", "sgd", "schedulefree"])
@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "amp-fp16"])
def test_a_step_changes_every_weight_and_leaves_it_float32(optimizer: str, precision: str) -> None:
    model = nn.Linear(4, 4)
    model.loss = lambda x, y: nn.functional.mse_loss(model(x).float(), y)  # type: ignore[assignment]
    before = model.weight.detach().clone()
    batch = torch.randn(8, 4), torch.randn(8, 4)
    options = {
        "precision": precision,
        "optimizer": optimizer,
        "lr": 0.1,
        "clip": 1.0,
        "device": "cpu",
    }
    loss = training_step(model, lambda: batch, **options)()  # type: ignore[arg-type]
    assert not loss.requires_grad and loss.dtype is torch.float32
    assert (model.weight != before).all() and model.weight.dtype is torch.float32


def test_clipping_bounds_the_step() -> None:
    weight = nn.Parameter(torch.zeros(3))
    module = nn.Module()
    module.weight = weight
    module.loss = lambda x, y: (1000 * weight).sum()  # type: ignore[assignment]
    options = {"precision": "fp32", "optimizer": "sgd", "lr": 1.0, "device": "cpu"}
    training_step(module, lambda: (weight, weight), clip=1.0, **options)()  # type: ignore[arg-type]
    assert weight.detach().norm().item() == pytest.approx(1.0, rel=1e-4)


def test_a_missing_optimizer_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "schedulefree", None)
    with pytest.raises(ValueError, match="pip install schedulefree"):
        make_optimizer("schedulefree", [nn.Parameter(torch.zeros(1))], 1e-3)


def test_other_defaults_show_in_the_signature_and_can_still_be_changed() -> None:
    seen: list[dict[str, object]] = []

    def make_model(*, dim: int = 1, depth: int = 2) -> nn.Module:
        seen.append({"dim": dim, "depth": depth})
        raise ValueError("no further")

    named = with_defaults(workload(make_model, seq_len=7), "wide", {"dim": 64})
    knobs = inspect.signature(named).parameters
    assert (
        named.__name__,
        knobs["dim"].default,
        knobs["depth"].default,
        knobs["seq_len"].default,
    ) == ("wide", 64, 2, 7)
    assert knobs["dim"].annotation is int
    for given in ({}, {"dim": 3}):
        with pytest.raises(ValueError, match="no further"):
            named(**given)
    assert seen == [{"dim": 64, "depth": 2}, {"dim": 3, "depth": 2}]


def test_a_model_is_spread_only_over_processes_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ValueError, match="Start the program with torchrun"):
        join_processes("ddp")
