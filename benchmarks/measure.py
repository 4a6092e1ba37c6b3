"""Measuring: both sides in turn, round by round, and the ratio of their medians.

Machines are noisy, and drift; what both sides of a round meet alike leaves the ratio as it was.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from time import perf_counter

import msgspec

Progress = Callable[[], None]
"""Called after each counted round."""

Side = Callable[[], float]
"""Does its work once and returns the seconds one operation of it took."""


class Ratio(msgspec.Struct, frozen=True):
    """The outcome of a comparison: medians in seconds an operation, their ratio, and the middle half of the rounds'."""

    ours: float
    floor: float
    ratio: float
    low: float
    high: float

    def of_throughput(self) -> Ratio:
        """The same as a ratio of operations a second, which is the larger the better."""
        return Ratio(self.ours, self.floor, 1 / self.ratio, 1 / self.high, 1 / self.low)


@contextmanager
def no_collections() -> Generator[None]:
    """Keep the garbage collector out of the way."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def timed(work: Callable[[], object], operations: int) -> float:
    """Seconds an operation, with the garbage collector out of the way."""
    with no_collections():
        start = perf_counter()
        work()
        return (perf_counter() - start) / operations


def compare(ours: Side, floor: Side, rounds: int, progress: Progress) -> Ratio:
    """Run both sides in turn for ``rounds`` rounds after one uncounted; who goes first changes each round."""
    ours()
    floor()
    pairs: list[tuple[float, float]] = []
    for round_number in range(rounds):
        if round_number % 2:
            second = floor()
            first = ours()
        else:
            first = ours()
            second = floor()
        pairs.append((first, second))
        progress()
    return ratio_of(pairs)


def ratio_of(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """The outcome of rounds of which each found a number for either side."""
    each = sorted(one / two for one, two in pairs)
    ours_median = statistics.median(one for one, _ in pairs)
    floor_median = statistics.median(two for _, two in pairs)
    quarter = len(each) // 4
    return Ratio(ours_median, floor_median, ours_median / floor_median, each[quarter], each[-1 - quarter])
