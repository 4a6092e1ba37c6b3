"""The candidate, which is a proposed record, and the checks that it must pass first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast, get_type_hints

import msgspec

from agent_memory_log.backend_kit.checks import MAX_ID_LENGTH
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.records.arguments import text_of
from agent_memory_log.memory.records.kinds import (
    MEMORY_TYPES,
    Episode,
    Fact,
    Note,
    Preference,
    RecordData,
    Relation,
    UnknownKind,
    kind_named,
    read_kind,
)
from agent_memory_log.memory.records.principals import subject_of
from agent_memory_log.memory.records.record import Envelope, Evidence, Link, Source

_Item = TypeVar("_Item")

MAX_TTL_DAYS = 36_500
_MAX_SEQ = 2**53 - 1
_TWO_TEXTS = frozenset({Preference, Fact})  # they hold only two texts, so they need no JSON check


class Candidate(Envelope, frozen=True):
    """A proposed record. See ``Envelope`` for the fields that every memory has.

    Attributes:
        data: The content: a ``Preference``, a ``Fact``, an ``Episode`` or another kind.
        scope: The scope that will hold the record. ``""``: the principal's home scope.
        confidence: 0 to 1. Numbers outside are clamped.
        importance: 0 to 1. Numbers outside are clamped.
        ttl_days: The lifetime from now, in whole days, 1 to 36,500. None: the default of the policy or of the kind.
        valid_until: The exact end, instead of ``ttl_days``.
        valid_from: The time of the statement. An older statement never replaces a newer one. None: now.
    """

    data: RecordData
    scope: str = ""
    ttl_days: float | None = None

    @property
    def key(self) -> str:
        """The key, or ``""`` if the kind has no keys."""
        return self.data.record_key

    @property
    def value(self) -> str:
        """The value, or ``""`` if the kind has no keys."""
        return self.data.record_value

    @property
    def own_memory_type(self) -> str:
        """The memory type if it differs from the kind's type, otherwise ``""``."""
        return "" if self.memory_type == self.data.memory_type else self.memory_type

    @property
    def words(self) -> str:
        """The text of the record."""
        return self.text or self.data.describe()

    def end(self, now: datetime) -> datetime | None:
        """Return the end of validity if the candidate is written ``now``. None: it never expires."""
        if self.valid_until is not None:
            return self.valid_until
        days = self.ttl_days if self.ttl_days is not None else self.data.default_ttl_days
        if days is None:
            return None
        try:
            return now + timedelta(days=days)
        except OverflowError:
            return None  # beyond the year 9999


def checked(candidate: Candidate, *, may_be_copy: bool = False) -> Candidate:
    """Check all fields of a candidate. Return it with its numbers clamped and its times in UTC.

    Raises ``InvalidArgument`` with the path of the invalid field.

    Args:
        candidate: The candidate.
        may_be_copy: Allow evidence that names an event of a memory stream. Imported records may have it.
    """
    data = _data(candidate.data)
    if isinstance(data, Episode):
        if not text_of(data.category, "category").strip():
            raise InvalidArgument("category must contain a character other than white space")
        data = msgspec.structs.replace(data, occurred_at=_time(data.occurred_at, "occurred_at"))
        if not candidate.text.strip():
            raise InvalidArgument("an episode needs a text that describes the event")
    if isinstance(data, Note) and not text_of(candidate.text, "text").strip():
        raise InvalidArgument("a note needs a text")
    fields: dict[str, Any] = {name: check(getattr(candidate, name), name) for name, check in _ENVELOPE_CHECKS}
    checked_candidate = Candidate(
        data,
        text_of(candidate.scope, "scope"),
        None if candidate.ttl_days is None else _days(candidate.ttl_days),
        **fields,
    )
    memory_type = checked_candidate.memory_type
    if memory_type and memory_type not in MEMORY_TYPES:
        raise InvalidArgument(f"memory_type must be one of {', '.join(MEMORY_TYPES)}, got {describe(memory_type)}")
    for evidence in checked_candidate.evidence:
        if is_reserved(evidence.agent) and not (may_be_copy and subject_of(evidence.agent)):
            raise InvalidArgument(
                f"evidence.agent must not be an agent id that the library reserves, got {describe(evidence.agent)}"
            )
    return checked_candidate


def _data(data: object) -> RecordData:  # noqa: C901  # one branch for each rule
    """Return the data of a candidate after checking it."""
    if not isinstance(data, RecordData):
        raise InvalidArgument(f"data must be a RecordData such as a Preference or Fact, got {describe(data)}")
    if not isinstance(data.kind, str) or not data.kind:
        raise InvalidArgument(f"data must have a kind with a name, got {describe(data)}")
    if isinstance(data, UnknownKind) and kind_named(data.kind) is not None:
        registered = read_kind(data.kind, data.data)
        if isinstance(registered, UnknownKind):
            raise InvalidArgument(f"data does not fit the kind {data.kind}, got {describe(data.data)}")
        data = registered
    if isinstance(data, (Preference, Fact)):
        if not text_of(data.value, "value").strip():
            raise InvalidArgument("value must contain a character other than white space")
        key = text_of(data.key, "key").strip()
        if not key:
            raise InvalidArgument("key must contain a character other than white space")
        if key is not data.key:
            data = msgspec.structs.replace(data, key=key)
        if type(data) in _TWO_TEXTS and type(data.value) is str:
            return data
    if isinstance(data, Relation):
        _check_relation(data)
    data.to_map()
    text_of(data.record_key, "key")
    return data


def _check_relation(data: Relation) -> None:
    for name in Relation.__struct_fields__:
        if not text_of(getattr(data, name), name).strip():
            raise InvalidArgument(f"{name} must contain a character other than white space")


def unit(value: object, name: str) -> float:
    """Return a number clamped to 0 to 1, with 3 decimals. Raises ``InvalidArgument`` if it is not a number."""
    return round(within(value, name, 0, 1), 3) + 0.0  # turns -0.0 into 0.0


def within(value: object, name: str, least: float, most: float) -> float:
    """Return a number clamped to ``least`` to ``most``. Raises ``InvalidArgument`` for a boolean, NaN or infinity."""
    if type(value) is float and least <= value <= most:
        return value
    return float(min(max(_number(value, name), least), most))


def _days(value: object) -> int:
    days = _number(value, "ttl_days")
    if not 1 <= days <= MAX_TTL_DAYS:
        raise InvalidArgument(f"ttl_days must be from 1 to {MAX_TTL_DAYS:,}, got {describe(value)}")
    return int(days)


def _number(value: object, name: str) -> float:
    number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    if isinstance(value, bool) or not number:
        raise InvalidArgument(f"{name} must be a number, got {describe(value)}")
    return cast("float", value)


def several(values: Sequence[_Item], name: str) -> tuple[_Item, ...]:
    """Return the items of a list or tuple. Raises ``InvalidArgument`` for anything else, including a text."""
    if not isinstance(values, (list, tuple)):
        raise InvalidArgument(f"{name} must be a list or tuple, got {describe(values)}")
    return tuple(values)


def _texts(values: Sequence[str], name: str) -> tuple[str, ...]:
    return tuple(text_of(text, f"{name}[{position}]") for position, text in enumerate(several(values, name)))


def _time(value: object, name: str) -> datetime | None:
    if value is None or (type(value) is datetime and value.tzinfo is UTC):
        return value
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidArgument(f"{name} must be a timezone-aware datetime, got {describe(value)}")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise InvalidArgument(f"{name} is outside the years 1 to 9999 in UTC") from error


def _source(value: object, name: str) -> Source:
    if not isinstance(value, Source):
        raise InvalidArgument(f"{name} must be a Source, got {describe(value)}")
    return Source(
        text_of(value.kind, f"{name}.kind"),
        text_of(value.id, f"{name}.id"),
        unit(value.reliability, f"{name}.reliability"),
    )


def evidence_of(values: Sequence[Evidence], name: str) -> tuple[Evidence, ...]:
    """Return evidence that can be stored. Raises ``InvalidArgument`` with the argument's name and the invalid field."""
    checked_evidence: list[Evidence] = []
    for value in cast("tuple[object, ...]", several(values, name)):
        if not isinstance(value, Evidence):
            raise InvalidArgument(f"{name} must be a list or tuple of Evidence, got {describe(value)}")
        if type(value.seq) is not int or not 1 <= value.seq <= _MAX_SEQ:
            raise InvalidArgument(f"{name}.seq must be an integer from 1, got {describe(value.seq)}")
        agent, run, item, event_id = (
            text_of(getattr(value, part), f"{name}.{part}") for part in ("agent", "run", "item", "event_id")
        )
        if not (agent and run):
            raise InvalidArgument(f"{name}.{'run' if agent else 'agent'} must not be empty")
        for part, text in (("agent", agent), ("run", run), ("event_id", event_id)):
            if len(text) > MAX_ID_LENGTH:
                raise InvalidArgument(f"{name}.{part} has {len(text):,} characters; the limit is {MAX_ID_LENGTH}")
        checked_evidence.append(Evidence(agent, run, value.seq, item, event_id))
    return tuple(checked_evidence)


def _links(values: Sequence[Link], name: str) -> tuple[Link, ...]:
    links: list[Link] = []
    for value in cast("tuple[object, ...]", several(values, name)):
        if not isinstance(value, Link):
            raise InvalidArgument(f"{name} must be a list or tuple of Link, got {describe(value)}")
        links.append(Link(text_of(value.type, f"{name}.type"), text_of(value.target, f"{name}.target")))
    return tuple(links)


_CHECKS: Mapping[object, Callable[..., object]] = {
    str: text_of,
    float: unit,
    datetime | None: _time,
    Source: _source,
    tuple[str, ...]: _texts,
    tuple[Evidence, ...]: evidence_of,
    tuple[Link, ...]: _links,
}
"""The check of each field of the envelope, by the field's type."""

_ENVELOPE_CHECKS = tuple((name, _CHECKS[hint]) for name, hint in get_type_hints(Envelope).items())
