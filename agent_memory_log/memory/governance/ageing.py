"""Computes how well a record is remembered: its stability, its retrievability and its layer.

The curve is that of FSRS-6, ``R = (1 + F * t / S) ** -D`` with ``F = 0.9 ** (-1 / D) - 1``. ``t`` is the number of days
since the record was last stated or used, and ``S`` is its stability in days, so that R is 0.9 after S days. FSRS-6
learns D for each learner, from 0.1 to 0.8, and begins with 0.1542. With 0.1542, R is below 0.1 only after three million
times the stability. So this module uses 0.8, with which R is below 0.1 after 119 times the stability.

A record has no stored strength. All values are computed from its events when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from agent_memory_log.memory.records.kinds import kind_named
from agent_memory_log.memory.records.reports.upkeep import Layer
from agent_memory_log.memory.stream.state import Live

DECAY = 0.8
FACTOR = 0.9 ** (-1 / DECAY) - 1

LONGEST_STABILITY = 36_500.0
"""The largest stability in days, as in FSRS."""

LONG_TERM_DAYS = 21.0
"""The stability from which a record is in the layer ``long_term``. Anki calls a card mature from 21 days."""

WORKING_DAYS = 1.0
"""A record that was stated or used in the last day is in the layer ``working``, unless it is in ``long_term``."""

STABILITY_DAYS: Mapping[str, float] = {"semantic": 10.0, "procedural": 10.0, "episodic": 1.0}
"""The stability of a record of medium importance that was never used, by its memory type.

An importance of 1 multiplies it by 4, and an importance of 0 divides it by 4. So an episode with two stars that is
never used has a retrievability of 0.1 after 60 days.
"""

_DAY = timedelta(days=1)


class Strength(msgspec.Struct, frozen=True):
    """How well a record is remembered.

    Attributes:
        layer: ``working``, ``short_term`` or ``long_term``.
        retrievability: From 0 to 1.
        stability_days: The days after which the retrievability is 0.9. 36,500: it does not age.
        idle_days: The days since the record was last stated or used.
        used_on_days: The number of days on which it was put into a context, at most 16.
    """

    layer: Layer
    retrievability: float
    stability_days: float
    idle_days: float
    used_on_days: int


def strength_of(live: Live, at: datetime) -> Strength:
    """Return the strength of a record at a time. Later uses and statements do not count."""
    day = at.astimezone(UTC).toordinal()
    used = tuple(use for use in live.used if use <= day)
    stability = stability_of(live, len(used))
    idle = idle_days(live, used, at)
    return Strength(layer_of(stability, idle), retrievability(idle, stability), stability, idle, len(used))


def stability_of(live: Live, uses: int) -> float:
    """Return the stability in days. It doubles with each day on which the record was used.

    Several uses on one day count once, because FSRS gives little weight to repetitions on the same day.
    """
    kind = kind_named(live.memory.kind)
    if kind is not None and not kind.ages:
        return LONGEST_STABILITY
    memory_type = live.memory.memory_type or (kind.memory_type if kind is not None else "semantic")
    days = STABILITY_DAYS[memory_type] * 4 ** (2 * live.memory.importance - 1)
    return float(min(days * 2**uses, LONGEST_STABILITY))


def retrievability(idle: float, stability: float) -> float:
    """Return the retrievability after ``idle`` days, from 0 to 1. ``stability`` is in days."""
    return float((1 + FACTOR * idle / stability) ** -DECAY)


def layer_of(stability: float, idle: float) -> Layer:
    """Return the layer of a record, by its stability and by the days since it was last stated or used."""
    if stability >= LONG_TERM_DAYS:
        return "long_term"
    return "working" if idle < WORKING_DAYS else "short_term"


def idle_days(live: Live, used: tuple[int, ...], at: datetime) -> float:
    """Return the days between the last statement or use of a record and ``at``, at least 0.

    ``used`` has the days of use up to ``at``. The hour of a use is unknown, so it counts from the start of its day.
    """
    stated = live.updated if live.updated <= at else live.created
    idle = max(0.0, (at - stated) / _DAY)
    if not used:
        return idle
    midnight = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since_midnight = (at - midnight) / _DAY
    return min(idle, at.astimezone(UTC).toordinal() - used[-1] + since_midnight)
