"""What the language models of the zoo have in common.

The loss, a random batch, blocks one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vramcast_zoo.recompute import recomputed


class LanguageModel(nn.Module):
    """`forward` turns tokens [batch, length] into logits [batch, length, vocabulary].

    The loss is the mean cross entropy of the next token: the caller hands in `targets` that are
    already one position ahead, so no model can be trained to repeat its input.
    """

    vocabulary: int
    longest: int | None = None
    loss_chunks = 1

    def set_options(
        self,
        *,
        checkpointing: bool = False,
        checkpoint_every: int = 1,
        stochastic_depth: float = 0.0,
        loss_chunks: int = 1,
    ) -> None:
        """How blocks and loss are computed: see run_blocks and chunked_cross_entropy."""
        check_positive(checkpoint_every=checkpoint_every, loss_chunks=loss_chunks)
        if not 0 <= stochastic_depth < 1:
            raise ValueError(f"stochastic_depth={stochastic_depth} is no probability below 1")
        self.checkpointing, self.checkpoint_every = checkpointing, checkpoint_every
        self.stochastic_depth, self.loss_chunks = stochastic_depth, loss_chunks

    def through_blocks(self, blocks: Iterable[nn.Module], x: Tensor, *extra: Tensor) -> Tensor:
        skipped = self.stochastic_depth if self.training else 0.0
        return run_blocks(
            blocks,
            x,
            *extra,
            checkpointing=self.checkpointing,
            every=self.checkpoint_every,
            skipped=skipped,
        )

    def features(self, tokens: Tensor) -> Tensor:
        """What the head turns into logits; for models whose loss can be computed in chunks."""
        raise NotImplementedError

    def head_matrices(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        if self.loss_chunks > 1:
            return self.chunked_loss(self.features(tokens), targets)
        logits = self(tokens)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def chunked_loss(self, features: Tensor, targets: Tensor) -> Tensor:
        return chunked_cross_entropy(
            logits_of,
            features.flatten(0, 1),
            targets.flatten(),
            self.head_matrices(),
            self.loss_chunks,
        )

    def random_batch(self, batch_size: int, seq_len: int, device: str) -> tuple[Tensor, Tensor]:
        return shifted(torch.randint(self.vocabulary, (batch_size, seq_len + 1), device=device))


def shifted(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs and targets, cut from one more token than the length: target t is input t + 1."""
    return tokens[:, :-1], tokens[:, 1:]


def logits_of(x: Tensor, *matrices: Tensor) -> Tensor:
    for matrix in matrices:
        x = F.linear(x, matrix)
    return x


def chunked_cross_entropy(
    logits_of: Callable[..., Tensor],
    features: Tensor,
    targets: Tensor,
    weights: Sequence[Tensor],
    chunks: int,
) -> Tensor:
    """The mean cross entropy of logits_of(features, *weights), one part of the tokens at a time.

    The parts' logits are not kept for the backward pass but computed again there.
    """

    def summed(part: Tensor, wanted: Tensor, *weights: Tensor) -> Tensor:
        return F.cross_entropy(logits_of(part, *weights), wanted, reduction="sum")

    parts = zip(features.chunk(chunks), targets.chunk(chunks), strict=True)
    sums = [
        recomputed(summed, part, wanted, *weights).float() for part, wanted in parts
    ]  # float: sums of sums in bf16 lose digits
    return torch.stack(sums).sum() / len(targets)


def run_blocks(
    blocks: Iterable[nn.Module],
    x: Tensor,
    *extra: Tensor,
    checkpointing: bool,
    every: int = 1,
    skipped: float = 0.0,
) -> Tensor:
    """Runs the blocks one after the other.

    `every`: of so many blocks one is checkpointed. `skipped`: the probability with which a step
    leaves a block out, as if it had added nothing; what the others add is made larger, so that the
    mean stays (stochastic depth).
    """
    for index, block in enumerate(blocks):
        if skipped and torch.rand(()).item() < skipped:  # drawn on the CPU: nothing is waited for
            continue
        again = checkpointing and index % every == 0
        result = checkpoint(block, x, *extra, use_reentrant=False) if again else block(x, *extra)
        x = x + (result - x) / (1 - skipped) if skipped else result
    return x


def check_divides(what: str, divisor: int, of_what: str, number: int) -> None:
    if divisor < 1 or number % divisor:
        raise ValueError(f"{what}={divisor} does not divide {of_what}={number}")


def check_length(length: int, longest: int | None) -> None:
    if longest is not None and length > longest:
        raise ValueError(
            f"a sequence of {length} tokens is longer than the {longest} positions "
            "the model has learned"
        )


def check_positive(**sizes: float) -> None:
    for name, value in sizes.items():
        if value <= 0:
            raise ValueError(f"{name}={value} must be above zero")


def init_normal(module: nn.Module, std: float = 0.02) -> None:
    """N(0, std²) for matrices and embeddings, zero for biases; for `model.apply(init_normal)`."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
