"""The record, which is a stored memory, and the envelope of fields that all kinds share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal, get_type_hints

import msgspec

from agent_memory_log.memory.records.kinds import RecordData

Status = Literal["active", "superseded", "archived", "expired"]

DEFAULT_CONFIDENCE = 0.8
DEFAULT_IMPORTANCE = 0.5
_SECONDS_A_DAY = 86_400

RunId = tuple[str, str]
"""A run of the log: its agent and its run."""


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, order=True):
    """The event that a memory cites: the event ``seq`` of ``agent``/``run``.

    - ``item``: which statement of that event, as an extractor counts them: ``rules/2`` is the second that the extractor
      named ``rules`` found; ``""`` is the whole event. It never holds a key or a value.
    - ``event_id``: the id of that event, ``""`` if it is not known. A copy that gives its events other seqs keeps their
      ids, so the id decides which event is meant, and the seq only where there is no id.

    Two are equal that name the same statement of the same place, whether both know the event's id or not.
    """

    agent: str
    run: str
    seq: int
    item: str = ""
    event_id: str = ""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Evidence)
            and self.seq == other.seq
            and self.run == other.run
            and self.agent == other.agent
            and self.item == other.item
        )

    def __hash__(self) -> int:
        return hash((self.agent, self.run, self.seq, self.item))

    @property
    def run_id(self) -> RunId:
        """The run that holds the event."""
        return (self.agent, self.run)


def place_name(evidence: Evidence) -> str:
    """An event's name, ``AGENT/RUN#seq``: no two events have the same, and it is no record's id."""
    agent, run = (part.replace("%", "%25").replace("/", "%2F") for part in (evidence.agent, evidence.run))
    return f"{agent}/{run}#{evidence.seq}"


class Source(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The source of a memory: ``kind`` is ``run``, ``user``, ``operator``, ``import`` or any text; ``id`` names it.

    ``reliability`` is from 0 to 1.
    """

    kind: str = "user"
    id: str = ""
    reliability: float = 1.0


class Link(msgspec.Struct, frozen=True, gc=False):
    """A tie to another record: ``type``, as in ``supersedes``, and the ``target``'s id."""

    type: str
    target: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that every memory has: as a candidate, as an event, as a record and as a line of an export.

    - ``text``: the memory in words (``""``: the kind's own).
    - ``confidence``: 0 to 1, to 3 decimals; ``importance``: 0 to 1, shown as ``stars``.
    - ``memory_type``: ``semantic`` (what is true), ``episodic`` (what happened) or ``procedural`` (how something is
      done); ``""``: as its kind says.
    - ``source``, ``evidence``: who says so, and the events it rests on, the statement itself first.
    - ``entities``, ``tags``, ``links``: what it is also found by, and the records it is tied to.
    - ``valid_from``, ``valid_until``: from when it holds, and until when it is returned (None: not said; for ever).

    A new field is added here, and nowhere else; how its values are checked follows from its type (``candidates``).
    """

    text: str = ""
    confidence: float = DEFAULT_CONFIDENCE
    importance: float = DEFAULT_IMPORTANCE
    memory_type: str = ""
    source: Source = Source()
    evidence: tuple[Evidence, ...] = ()
    entities: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    valid_from: datetime | None = None
    valid_until: datetime | None = None


ENVELOPE_FIELDS: tuple[str, ...] = Envelope.__struct_fields__
_envelope_values = attrgetter(*ENVELOPE_FIELDS)


_FREE_TEXTS = tuple(
    name
    for name, hint in get_type_hints(Envelope).items()
    if hint in (str, tuple[str, ...]) and name != "memory_type"  # which is one of three words
)


def free_texts(memory: Envelope) -> Iterator[str]:
    """Every text of the envelope in which a caller may write anything: a secret, or a value to be forgotten."""
    for name in _FREE_TEXTS:
        value: str | tuple[str, ...] = getattr(memory, name)
        if isinstance(value, str):
            yield value
        else:
            yield from value


def envelope_of(memory: Envelope, **changes: object) -> dict[str, Any]:
    """The fields of ``memory``'s envelope by name, with ``changes``: another struct with an envelope takes them."""
    fields: dict[str, Any] = dict(zip(ENVELOPE_FIELDS, _envelope_values(memory)))  # noqa: B905  # always as many
    fields.update(changes)
    return fields


class Record(Envelope, frozen=True):
    """A stored memory; see ``Envelope`` for the fields that every memory has.

    - ``id``: unique among all subjects; ``scope``: the principal's scope whose subject holds it.
    - ``kind``, ``data``: what it is about; ``key``: what it is found by, ``""`` for kinds without keys.
    - ``created``, ``updated``: the times of the first and the latest event that made it what it is.
    - ``status``: only what is ``active`` is returned where nothing is said.
    """

    id: str
    kind: str
    scope: str
    key: str
    created: datetime
    updated: datetime
    status: Status
    data: RecordData

    @property
    def value(self) -> str:
        """The value under the key, or ``""`` for kinds without keys."""
        return self.data.record_value

    @property
    def stars(self) -> int:
        """The importance, from 1 to 5."""
        return stars_of(self.importance)

    @property
    def supersedes(self) -> tuple[str, ...]:
        """The ids of the records that this one took the place of."""
        return tuple(link.target for link in self.links if link.type == "supersedes")

    def ttl_left_days(self, now: datetime) -> int | None:
        """Whole days until it expires, rounded up, at least 0; None if it never does."""
        if self.valid_until is None:
            return None
        return max(0, math.ceil((self.valid_until - now).total_seconds() / _SECONDS_A_DAY))


def stars_of(importance: float) -> int:
    """An importance of 0 to 1 as 1 to 5 stars; 0.5 is 3."""
    return 1 + math.floor(importance * 4 + 0.5)
