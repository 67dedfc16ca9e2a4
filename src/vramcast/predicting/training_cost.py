"""What a whole training takes on a GPU: hours, and with prices its cost."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.checks import check_positive, read_tokens
from vramcast.records.base import shortened
from vramcast.records.store import read_toml

MAX_PRICE = 1e6
PRICE_ADVICE = "For example --price h200=3.5, the price of one GPU for an hour."
FILE_ADVICE = "Write a line for each GPU, such as h200 = 3.5: the price of one for an hour."
# Usual names of the knob for the number of micro-batches in a step.
ACCUMULATION = ("accumulation", "accumulation_steps", "gradient_accumulation_steps")


@dataclass(frozen=True, kw_only=True)
class Training:
    """The length of a training, and the price of an hour by GPU."""

    tokens: int | None = None  # samples, where the workload has no knob seq_len
    steps: int | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    num_gpus: int = 1

    def hours(self, seconds: float | None, tokens_per_step: int | None) -> float | None:
        steps: float | None = self.steps
        if self.tokens is not None and tokens_per_step:
            steps = self.tokens / tokens_per_step
        return None if seconds is None or steps is None else steps * seconds / 3600

    def cost(self, gpu: str | None, hours: float | None) -> float | None:
        price = self.prices.get(gpu or "")
        return None if price is None or hours is None else price * hours * self.num_gpus


def read_training(
    *,
    tokens: str | float | None = None,
    steps: int | None = None,
    price: Mapping[str, float] | Sequence[str] = (),
    prices: str | os.PathLike[str] | None = None,
    num_gpus: int = 1,
) -> Training:
    if tokens is not None and steps is not None:
        raise UsageError(
            "--tokens and --train-steps both say how long the training is.", "Give one of them."
        )
    check_positive("--train-steps", steps, 10_000)
    if tokens is not None and num_gpus > 1:
        raise UsageError(
            f"The number of tokens in a step of all {num_gpus} GPUs is not known.",
            "Give --train-steps N in place of --tokens.",
        )
    known = read_prices(price, prices)
    if known and tokens is None and steps is None:
        raise UsageError(
            "Prices are per hour, and the length of the training was not given.",
            "Add --tokens 10B or --train-steps 10000.",
        )
    return Training(
        tokens=None if tokens is None else read_tokens(tokens),
        steps=steps,
        prices=known,
        num_gpus=num_gpus,
    )


def read_prices(
    price: Mapping[str, float] | Sequence[str] = (), prices: str | os.PathLike[str] | None = None
) -> dict[str, float]:
    """The price of one hour by GPU. Prices given one by one replace those of the file."""
    found: dict[str, float] = {}
    if prices is not None:
        found = _by_name(_of_file(Path(prices)).items(), f"{os.fspath(prices)}: ", FILE_ADVICE)
    pairs = price.items() if isinstance(price, Mapping) else map(_parsed, price)
    return {**found, **_by_name(pairs, "", PRICE_ADVICE)}


def _of_file(path: Path) -> dict[str, Any]:
    values = read_toml(path, "The list of prices", FILE_ADVICE)
    if not values:
        raise UsageError(f"{path} has no price.", FILE_ADVICE)
    return values


def _parsed(text: str) -> tuple[str, Any]:
    name, equals, number = map(str.strip, text.partition("="))
    if not name or not equals:
        raise UsageError(f"--price {shortened(text)} is not GPU=PRICE.", PRICE_ADVICE)
    try:
        return name, float(number)
    except ValueError:
        return name, number


def _by_name(pairs: Iterable[tuple[str, Any]], where: str, advice: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for given, price in pairs:
        try:
            name = find_gpu(given).name
        except UsageError as problem:
            raise UsageError(f"{where}{problem.message}.", problem.advice) from None
        is_number = isinstance(price, int | float) and not isinstance(price, bool)
        # This also refuses NaN, with which every comparison is false.
        if not is_number or not math.isfinite(price) or not 0 <= price <= MAX_PRICE:
            raise UsageError(
                f"{where}the price of {name} is {shortened(price)}, not a number from 0 to 1e6.",
                advice,
            )
        if name in found:
            raise UsageError(f"{where}the price of {name} is given twice.", advice)
        found[name] = float(price)
    return found


def per_step(knobs: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Samples and tokens of a step. Without a knob seq_len, tokens are samples."""
    samples = knobs.get("batch_size")
    if type(samples) is not int:
        return None, None
    for name in ACCUMULATION:
        passes = knobs.get(name)
        samples *= passes if type(passes) is int and passes > 0 else 1
    length = knobs.get("seq_len")
    return samples, samples * length if type(length) is int else samples
