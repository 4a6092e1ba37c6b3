"""The record, which is a stored memory, and the envelope: the fields that all kinds share."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Literal, get_type_hints

import msgspec

from agent_memory_log.memory.records.kinds import RecordData

Status = Literal["active", "superseded", "archived", "expired"]

DEFAULT_CONFIDENCE = 0.8
DEFAULT_IMPORTANCE = 0.5

MERGES = "merged_from"
"""The type of the link from a merged record to the record whose value it contains."""

RESTORES = "restores"
"""The type of the link from a record to the archived record that it repeats."""

DERIVED_FROM = "derived_from"
"""The type of the link from a record to the record that it was concluded from."""

RunId = tuple[str, str]
"""The agent and the run that identify a run of the log."""


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, order=True):
    """An event that a memory cites.

    Two values are equal if ``agent``, ``run``, ``seq`` and ``item`` are equal. The ``event_id`` is not compared.

    Attributes:
        agent: The agent of the run that holds the event.
        run: The run that holds the event.
        seq: The seq of the event.
        item: The statement within the event: the extractor's name and a number. ``rules/2`` is the second statement
            that the extractor ``rules`` read from the event. ``""``: the whole event. It never holds a key or a value.
        event_id: The id of the event, or ``""`` if it is unknown. A copied run may have other seqs, but it keeps the
            ids. So the id decides which event is meant. The seq decides only if there is no id.
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
    """Return the unique name of an event, ``AGENT/RUN#seq``. No record has such an id."""
    agent, run = (part.replace("%", "%25").replace("/", "%2F") for part in (evidence.agent, evidence.run))
    return f"{agent}/{run}#{evidence.seq}"


class Source(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The source of a memory.

    Attributes:
        kind: ``run``, ``user``, ``operator``, ``import`` or any other text.
        id: The id of the source, such as the id of a run or a user.
        reliability: From 0 to 1.
    """

    kind: str = "user"
    id: str = ""
    reliability: float = 1.0


class Link(msgspec.Struct, frozen=True, gc=False):
    """A link to another record: its ``type``, such as ``supersedes``, and the id of the ``target``.

    The links ``restores``, ``reconciled`` and ``merged_from`` of a caller are left out: only the library writes them.
    An import keeps ``merged_from``.
    """

    type: str
    target: str


def links_without(links: Iterable[Link], types: Container[str]) -> tuple[Link, ...]:
    """Return the links without those of some types."""
    return tuple(link for link in links if link.type not in types)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that every memory has: as a candidate, as an event, as a record and as a line of an export.

    A new field needs to be added only here. ``candidates`` chooses the check of its values by its type.

    Attributes:
        text: The memory in words. ``""``: the text that the kind makes from the data.
        confidence: From 0 to 1, with 3 decimals.
        importance: From 0 to 1, with 3 decimals. ``stars`` shows it as 1 to 5.
        memory_type: ``semantic`` (a truth), ``episodic`` (an event) or ``procedural`` (a way to do something). ``""``:
            the type of its kind.
        source: The source of the memory.
        evidence: The events that support the memory. The statement itself comes first.
        entities: Names that a search finds the memory by.
        tags: Words that a search finds the memory by.
        links: Links to other records.
        valid_from: The time from which the memory is true. None: unknown.
        valid_until: The time at which the memory expires. None: it never expires.
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
    if hint in (str, tuple[str, ...]) and name != "memory_type"  # one of three fixed words
)


def free_texts(memory: Envelope) -> Iterator[str]:
    """Yield each free text of the envelope. Such a text may hold a secret, or a value to forget."""
    for name in _FREE_TEXTS:
        value: str | tuple[str, ...] = getattr(memory, name)
        if isinstance(value, str):
            yield value
        else:
            yield from value


def envelope_of(memory: Envelope, **changes: object) -> dict[str, Any]:
    """Return the envelope fields of ``memory`` by name, with ``changes``, as arguments for another struct."""
    fields: dict[str, Any] = dict(zip(ENVELOPE_FIELDS, _envelope_values(memory)))  # noqa: B905  # the lengths are equal
    fields.update(changes)
    return fields


class Record(Envelope, frozen=True):
    """A stored memory; see ``Envelope`` for the fields that every memory has.

    Attributes:
        id: The id. It is unique among all subjects.
        kind: The name of the kind, such as ``preference``.
        scope: The principal's scope that holds the record.
        key: The key, or ``""`` if the kind has no keys.
        created: The time of the event that made the record.
        updated: The time of the latest event that changed the record.
        status: Calls return only ``active`` records by default.
        data: The content.
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
        """The value, or ``""`` if the kind has no keys."""
        return self.data.record_value

    @property
    def stars(self) -> int:
        """The importance, from 1 to 5."""
        return stars_of(self.importance)

    @property
    def supersedes(self) -> tuple[str, ...]:
        """The ids of the records that this record replaced."""
        return tuple(link.target for link in self.links if link.type == "supersedes")

    def ttl_left_days(self, now: datetime) -> int | None:
        """Return the whole days until the record expires, rounded up, at least 0. None: it never expires."""
        if self.valid_until is None:
            return None
        return max(0, math.ceil((self.valid_until - now) / timedelta(days=1)))


def own_text(memory: Envelope, data: RecordData) -> str:
    """Return the text of a memory, or ``""`` if its kind makes this text from its key and its value."""
    return "" if data.record_key and memory.text == data.describe() else memory.text


def stars_of(importance: float) -> int:
    """Return an importance from 0 to 1 as 1 to 5 stars. 0.5 is 3 stars."""
    return 1 + math.floor(importance * 4 + 0.5)
