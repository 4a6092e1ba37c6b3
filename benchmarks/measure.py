"""Measuring: both sides in turn, round by round, and the ratio of their medians.

Machines are noisy and drift. A disturbance that hits both sides of a round does not change the ratio.
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
    """The outcome of a comparison: two medians in seconds for each operation, their ratio, and its quartiles."""

    measured: float
    floor: float
    ratio: float
    low: float
    high: float

    def of_throughput(self) -> Ratio:
        """Return the outcome as a ratio of operations in a second. Larger is better."""
        return Ratio(self.measured, self.floor, 1 / self.ratio, 1 / self.high, 1 / self.low)


@contextmanager
def no_collections() -> Generator[None]:
    """Pause the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def timed(work: Callable[[], object], operations: int) -> float:
    """Return the seconds for each operation, with the garbage collector paused."""
    with no_collections():
        start = perf_counter()
        work()
        return (perf_counter() - start) / operations


def compare(measured: Side, floor: Side, rounds: int, progress: Progress) -> Ratio:
    """Run both sides in turn for ``rounds`` rounds, after a warm-up round. The first side changes each round."""
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
    """Return the outcome of rounds, each with a number for both sides."""
    each = sorted(first / second for first, second in pairs)
    ours_median = statistics.median(first for first, _ in pairs)
    floor_median = statistics.median(second for _, second in pairs)
    quarter = len(each) // 4
    return Ratio(ours_median, floor_median, ours_median / floor_median, each[quarter], each[-1 - quarter])
