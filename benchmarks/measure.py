"""Measures two sides in turn, round by round, and computes the ratio of their medians.

The speed of a machine varies over time. A disturbance that slows both sides of a round does not change the ratio.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from time import perf_counter

import msgspec

Progress = Callable[[], None]
"""A function that is called after each counted round."""

Side = Callable[[], float]
"""A function that does its work once and returns the seconds for each operation."""


class Ratio(msgspec.Struct, frozen=True):
    """The outcome of a comparison.

    Attributes:
        measured: The median of our side, in seconds for each operation.
        floor: The median of the floor, in seconds for each operation.
        ratio: ``measured`` divided by ``floor``.
        low: The lower quartile of the ratios of the rounds.
        high: The upper quartile of the ratios of the rounds.
    """

    measured: float
    floor: float
    ratio: float
    low: float
    high: float

    def of_throughput(self) -> Ratio:
        """Return the outcome as a ratio of throughputs, in operations a second. Larger is better."""
        return Ratio(self.measured, self.floor, 1 / self.ratio, 1 / self.high, 1 / self.low)


@contextmanager
def no_collections() -> Generator[None]:
    """Pause the garbage collector while the block runs."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def timed(work: Callable[[], object], operations: int) -> float:
    """Run ``work`` with the garbage collector paused, and return the seconds for each of its ``operations``."""
    with no_collections():
        start = perf_counter()
        work()
        return (perf_counter() - start) / operations


def compare(measured: Side, floor: Side, rounds: int, progress: Progress) -> Ratio:
    """Run both sides in turn and return the outcome. A warm-up round comes first and is not counted.

    Args:
        measured: Our side.
        floor: The side to compare with.
        rounds: The number of counted rounds. The sides change their order in each round.
        progress: Called after each counted round.
    """
    measured()
    floor()
    pairs: list[tuple[float, float]] = []
    for round_number in range(rounds):
        if round_number % 2:
            second = floor()
            first = measured()
        else:
            first = measured()
            second = floor()
        pairs.append((first, second))
        progress()
    return ratio_of(pairs)


def ratio_of(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return the outcome of rounds. A pair has the seconds of our side and those of the floor."""
    each = sorted(first / second for first, second in pairs)
    ours_median = statistics.median(first for first, _ in pairs)
    floor_median = statistics.median(second for _, second in pairs)
    quarter = len(each) // 4
    return Ratio(ours_median, floor_median, ours_median / floor_median, each[quarter], each[-1 - quarter])
