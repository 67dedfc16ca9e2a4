"""What draws from the GPU's generator: run on an H200 by record_random.py, and by the tests."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

SEED = 7
OFFSETS = (0, 12)  # numbers that were drawn before


def _empty(count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(count, device="cuda", dtype=dtype)


def _ones(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(shape, device="cuda", dtype=dtype)


def _chances(count: int) -> Tensor:
    return torch.arange(count, device="cuda") / count


def _integers(low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.randint(low, high, shape, device="cuda", dtype=dtype)


# Those whose numbers are followed.
NUMBERS: dict[str, Callable[[], Tensor]] = {
    "randint 100 of 10": lambda: _integers(0, 100, 10),
    "randint 50000 of 16 x 128": lambda: _integers(0, 50_000, 16, 128),
    "randint -5 to 7": lambda: _integers(-5, 7, 1000),
    "randint of more elements than threads": lambda: _integers(0, 1000, 600_000),
    "randint of many more elements": lambda: _integers(0, 1000, 1_500_001),
    "randint of two words": lambda: _integers(0, 2**40, 3000),
    "randint of two words, many": lambda: _integers(0, 2**28, 300_000),
    "randint bool": lambda: _integers(0, 2, 500, dtype=torch.bool),
    "randint uint8": lambda: _integers(0, 200, 777, dtype=torch.uint8),
    "randint int32": lambda: _integers(0, 2000, 777, dtype=torch.int32),
    "random_ int64": lambda: _empty(1000, torch.int64).random_(),
    "random_ to 17": lambda: _empty(1000, torch.int32).random_(17),
    "rand 5": lambda: torch.rand(5, device="cuda"),
    "rand 4096": lambda: torch.rand(4096, device="cuda"),
    "rand float16": lambda: torch.rand(1000, device="cuda", dtype=torch.float16),
    "rand bfloat16": lambda: torch.rand(1000, device="cuda", dtype=torch.bfloat16),
    "randn 5": lambda: torch.randn(5, device="cuda"),
    "randn 4096": lambda: torch.randn(4096, device="cuda"),
    "randn bfloat16": lambda: torch.randn(1000, device="cuda", dtype=torch.bfloat16),
    "uniform_ -2 to 3": lambda: _empty(3000).uniform_(-2, 3),
    "normal_ 1, 0.5": lambda: _empty(3000).normal_(1.0, 0.5),
    "bernoulli_ 0.3": lambda: _empty(3000).bernoulli_(0.3),
    "bernoulli_ bool": lambda: _empty(3000, torch.bool).bernoulli_(0.15),
    "bernoulli_ int64": lambda: _empty(300_000, torch.int64).bernoulli_(0.5),
    "bernoulli of chances": lambda: torch.bernoulli(_chances(3000)).bool(),
    "bernoulli of many chances": lambda: torch.bernoulli(_chances(15_001)).bool(),
    "bernoulli of rows": lambda: _ones(33, 7).bernoulli_(_chances(7)).bool(),
    "bernoulli of half": lambda: torch.bernoulli(_chances(3000).half()).bool(),
}


def _attended(backend: SDPBackend, *shape: int, dtype: torch.dtype, dropout: float) -> Tensor:
    q = _ones(*shape, dtype=dtype).requires_grad_()
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, q, q, dropout_p=dropout)


def _attentions() -> dict[str, Callable[[], Tensor]]:
    found = {}
    for backend in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"):
        for shape in ((2, 4, 128, 64), (3, 5, 100, 64), (8, 16, 512, 64)):
            for dropout in (0.0, 0.1):
                found[f"{backend} {shape} {dropout}"] = lambda b=backend, s=shape, d=dropout: (
                    _attended(getattr(SDPBackend, b), *s, dtype=torch.bfloat16, dropout=d)
                )
    return found


# Of these only how many numbers they take.
AMOUNTS: dict[str, Callable[[], Tensor]] = {
    "rand 400000": lambda: torch.rand(400_000, device="cuda"),
    "rand float64": lambda: torch.rand(400_000, device="cuda", dtype=torch.float64),
    "randn float64": lambda: torch.randn(400_000, device="cuda", dtype=torch.float64),
    "bernoulli of a tensor": lambda: torch.bernoulli(_ones(1000) * 0.3),
    "exponential_": lambda: _empty(3000).exponential_(),
    "geometric_": lambda: _empty(3000).geometric_(0.5),
    "cauchy_": lambda: _empty(3000).cauchy_(),
    "log_normal_": lambda: _empty(3000).log_normal_(),
    "randperm 5": lambda: torch.randperm(5, device="cuda"),
    "randperm 70000": lambda: torch.randperm(70_000, device="cuda"),
    "randperm 1000000": lambda: torch.randperm(1_000_000, device="cuda"),
    "dropout 3000": lambda: F.dropout(_ones(3000), 0.1),
    "dropout 3000000": lambda: F.dropout(_ones(3_000_000), 0.1),
    "dropout bfloat16": lambda: F.dropout(_ones(300_000, dtype=torch.bfloat16), 0.1),
    "dropout float64": lambda: F.dropout(_ones(300_000, dtype=torch.float64), 0.1),
    "dropout2d": lambda: F.dropout2d(_ones(8, 16, 4, 4), 0.1),
    "alpha_dropout": lambda: F.alpha_dropout(_ones(3000), 0.1, training=True),
    "gumbel_softmax": lambda: F.gumbel_softmax(_ones(30, 10)),
    "multinomial": lambda: torch.multinomial(_ones(10, 50), 3),
    "multinomial, one": lambda: torch.multinomial(_ones(10, 50), 1, True),
    "categorical": lambda: torch.distributions.Categorical(_ones(100, 7)).sample(),
    **_attentions(),
}


def start(offset: int) -> None:
    """The generator as it is after so many numbers."""
    torch.cuda.manual_seed(SEED)
    state = torch.cuda.get_rng_state()
    state.view(torch.int64)[1] = offset
    torch.cuda.set_rng_state(state)


def num_taken(offset: int) -> int:
    return int(torch.cuda.get_rng_state().view(torch.int64)[1]) - offset
