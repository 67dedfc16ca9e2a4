"""Is a difference between measured runs real, or noise? Student's t tests and their corrections."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# A difference counts as real if chance alone would give one as large with a lower probability.
LEVEL = 0.05


@dataclass(frozen=True)
class Noise:
    """The standard error of a mean, with the degrees of freedom of that estimate."""

    standard_error: float
    degrees: float


@dataclass(frozen=True)
class Test:
    difference: float  # second minus first
    standard_error: float
    p_value: float
    interval: tuple[float, float]  # the 95 % confidence interval of the difference


def welch(first: Sequence[float], second: Sequence[float]) -> Test:
    """A test of two independent groups of at least two numbers each."""
    parts = [statistics.variance(group) / len(group) for group in (first, second)]
    weights = parts[0] ** 2 / (len(first) - 1) + parts[1] ** 2 / (len(second) - 1)
    # Without any spread every difference is certain, and the degrees of freedom do not matter.
    degrees = sum(parts) ** 2 / weights if weights else 1.0
    return t_test(_difference(first, second), Noise(math.sqrt(sum(parts)), degrees))


def paired(first: Sequence[float], second: Sequence[float]) -> Test:
    """A test of at least two pairs. What both numbers of a pair share cancels out."""
    gaps = [b - a for a, b in zip(first, second, strict=True)]
    error = statistics.stdev(gaps) / math.sqrt(len(gaps))
    return t_test(statistics.fmean(gaps), Noise(error, len(gaps) - 1.0))


def pooled(first: Sequence[float], second: Sequence[float]) -> Test:
    """Student's test of two groups with the same spread, of at least three numbers in all."""
    degrees = len(first) + len(second) - 2.0
    squares = sum((x - statistics.fmean(group)) ** 2 for group in (first, second) for x in group)
    error = math.sqrt(squares / degrees * (1 / len(first) + 1 / len(second)))
    return t_test(_difference(first, second), Noise(error, degrees))


def _difference(first: Sequence[float], second: Sequence[float]) -> float:
    return statistics.fmean(second) - statistics.fmean(first)


def t_test(difference: float, noise: Noise) -> Test:
    # scipy.stats has the same functions and takes twice as long to import
    from scipy.special import stdtr, stdtrit

    error = noise.standard_error
    if error == 0:
        return Test(difference, 0.0, 1.0 if difference == 0 else 0.0, (difference, difference))
    reach = float(stdtrit(noise.degrees, 1 - LEVEL / 2)) * error
    p_value = 2 * float(stdtr(noise.degrees, -abs(difference / error)))
    return Test(difference, error, p_value, (difference - reach, difference + reach))


def mean_noise(values: Sequence[float]) -> Noise:
    """The noise of a mean of numbers that depend on their neighbours, such as the losses of a run.

    A straight line is removed: losses that still fall are not noise. The rest is cut into a few
    long stretches, whose means hardly depend on each other.
    """
    import numpy as np

    n = len(values)
    stretches = min(5, n // 2)
    if stretches < 3:  # the straight line takes two degrees of freedom
        return Noise(math.inf, 1.0)
    places, numbers = np.arange(n), np.asarray(values)
    rest = numbers - np.polyval(np.polyfit(places, numbers, 1), places)
    if rest @ rest <= 1e-24 * (numbers @ numbers):  # only rounding errors are left
        return Noise(0.0, stretches - 2.0)
    means = rest[n % stretches :].reshape(stretches, -1).mean(axis=1)
    return Noise(math.sqrt(float(means @ means) / (stretches - 2) / stretches), stretches - 2.0)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values after Holm's correction, which raises them: of several tests some pass by
    chance."""
    raised, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        raised[index] = largest
    return raised
