"""The candidate: a record that somebody proposes, and what it must be before anything looks at it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast, get_type_hints

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.event import moved
from agent_memory_log.events.fields import describe
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.records.arguments import text_of
from agent_memory_log.memory.records.kinds import (
    MEMORY_TYPES,
    Episode,
    Fact,
    Preference,
    RecordData,
    UnknownKind,
    kind_named,
    read_kind,
)
from agent_memory_log.memory.records.principals import subject_of
from agent_memory_log.memory.records.record import Envelope, Evidence, Link, Source

_Item = TypeVar("_Item")

_MAX_TTL_DAYS = 36_500
_MAX_SEQ = 2**53 - 1
_TWO_TEXTS = frozenset({Preference, Fact})  # they hold key and value and nothing else: two texts can be stored


class Candidate(Envelope, frozen=True):
    """A record that is proposed; see ``Envelope`` for the fields that every memory has.

    - ``data``: what it is about.
    - ``scope``: whose it is to be (``""``: the principal's home).
    - ``confidence`` and ``importance`` beyond 0 to 1 are cut.
    - ``ttl_days``: how long it is valid from now (None: as its kind says); cut to what the kind allows.
    - ``valid_until``: the very time, in place of ``ttl_days``; cut likewise.
    - ``valid_from``: an older statement never takes the place of a newer one (None: now).
    """

    data: RecordData
    scope: str = ""
    ttl_days: float | None = None

    @property
    def key(self) -> str:
        """The key of a keyed kind, else ``""``."""
        return self.data.record_key

    @property
    def value(self) -> str:
        """The value of a keyed kind, else ``""``."""
        return self.data.record_value

    @property
    def own_memory_type(self) -> str:
        """The memory type where it is another than the kind's; else ``""``."""
        return "" if self.memory_type == self.data.memory_type else self.memory_type

    @property
    def words(self) -> str:
        """The text it will have."""
        return self.text or self.data.describe()

    def end(self, now: datetime) -> datetime | None:
        """Until when it is valid if it is written ``now``."""
        most = self.data.max_ttl_days
        if self.valid_until is not None:
            return self.valid_until if most is None else min(self.valid_until, moved(now, timedelta(days=most)))
        days = self.ttl_days if self.ttl_days is not None else self.data.default_ttl_days
        if days is None:
            return None
        try:
            return now + timedelta(days=days)
        except OverflowError:
            return None  # beyond the year 9999


def checked(candidate: Candidate, *, may_be_copy: bool = False) -> Candidate:
    """The candidate with its numbers within bounds, its times in UTC, and its texts known to be storable.

    ``may_be_copy``: its evidence may be a record in a memory stream, as that of an imported record is.
    Raises ``InvalidArgument`` naming the field.
    """
    data = _data(candidate.data)
    if isinstance(data, Episode):
        if not text_of(data.category, "category").strip():
            raise InvalidArgument("category must be text that is not white space alone")
        data = msgspec.structs.replace(data, occurred_at=_time(data.occurred_at, "occurred_at"))
        if not candidate.text.strip():
            raise InvalidArgument("an episode needs a text that says what happened")
    most = data.max_ttl_days or _MAX_TTL_DAYS
    fields: dict[str, Any] = {name: check(getattr(candidate, name), name) for name, check in _ENVELOPE_CHECKS}
    made = Candidate(
        data,
        text_of(candidate.scope, "scope"),
        None if candidate.ttl_days is None else int(within(candidate.ttl_days, "ttl_days", 1, most)),
        **fields,
    )
    if made.memory_type and made.memory_type not in MEMORY_TYPES:
        raise InvalidArgument(
            f"memory_type must be one of {', '.join(MEMORY_TYPES)}, found {describe(made.memory_type)}"
        )
    for evidence in made.evidence:
        if is_reserved(evidence.agent) and not (may_be_copy and subject_of(evidence.agent)):
            raise InvalidArgument(
                f"evidence.agent must not be one of the library's own, found {describe(evidence.agent)}"
            )
    return made


def _data(data: object) -> RecordData:
    """What it is about, known to be storable."""
    if not isinstance(data, RecordData):
        raise InvalidArgument(f"data must be a RecordData, as Preference and Fact are, found {describe(data)}")
    if not isinstance(data.kind, str) or not data.kind:
        raise InvalidArgument(f"data must be of a kind with a name, found {describe(data)}")
    if isinstance(data, UnknownKind) and kind_named(data.kind) is not None:
        known = read_kind(data.kind, data.data)
        if isinstance(known, UnknownKind):
            raise InvalidArgument(f"data is not that of a {data.kind}, found {describe(data.data)}")
        data = known
    if isinstance(data, (Preference, Fact)):
        text_of(data.value, "value")
        key = text_of(data.key, "key").strip()
        if not key:
            raise InvalidArgument("key must be text that is not white space alone")
        if key is not data.key:
            data = msgspec.structs.replace(data, key=key)
        if type(data) in _TWO_TEXTS and type(data.value) is str:
            return data
    data.to_map()
    text_of(data.record_key, "key")
    return data


def unit(value: object, name: str) -> float:
    """A number cut to 0 to 1, to 3 decimals. Raises ``InvalidArgument``."""
    return round(within(value, name, 0, 1), 3) + 0.0  # so that there is no -0.0


def within(value: object, name: str, least: float, most: float) -> float:
    """A number cut to ``least`` to ``most``; booleans, NaN and infinities are none. Raises ``InvalidArgument``."""
    if type(value) is float and least <= value <= most:
        return value
    number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    if isinstance(value, bool) or not number:
        raise InvalidArgument(f"{name} must be a number, found {describe(value)}")
    return float(min(max(cast("float", value), least), most))


def several(values: Sequence[_Item], name: str) -> tuple[_Item, ...]:
    """The items of a list or tuple. Raises ``InvalidArgument``, for a text too, which holds letters."""
    if not isinstance(values, (list, tuple)):
        raise InvalidArgument(f"{name} must be a list or tuple, found {describe(values)}")
    return tuple(values)


def _texts(values: Sequence[str], name: str) -> tuple[str, ...]:
    return tuple(text_of(text, f"{name}[{place}]") for place, text in enumerate(several(values, name)))


def _time(value: object, name: str) -> datetime | None:
    if value is None or (type(value) is datetime and value.tzinfo is UTC):
        return value
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidArgument(f"{name} must be a timezone-aware datetime, found {describe(value)}")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise InvalidArgument(f"{name} is outside the years 1 to 9999 in UTC") from error


def _source(value: object, name: str) -> Source:
    if not isinstance(value, Source):
        raise InvalidArgument(f"{name} must be a Source, found {describe(value)}")
    return Source(
        text_of(value.kind, f"{name}.kind"),
        text_of(value.id, f"{name}.id"),
        unit(value.reliability, f"{name}.reliability"),
    )


def _evidence(values: Sequence[Evidence], name: str) -> tuple[Evidence, ...]:
    checked_evidence: list[Evidence] = []
    for value in cast("tuple[object, ...]", several(values, name)):
        if not isinstance(value, Evidence):
            raise InvalidArgument(f"{name} must be several Evidence, found {describe(value)}")
        if type(value.seq) is not int or not 1 <= value.seq <= _MAX_SEQ:
            raise InvalidArgument(f"{name}.seq must be an integer from 1, found {describe(value.seq)}")
        agent, run, item, event_id = (
            text_of(getattr(value, part), f"{name}.{part}") for part in ("agent", "run", "item", "event_id")
        )
        if not (agent and run):
            raise InvalidArgument(f"{name}.{'run' if agent else 'agent'} must not be empty")
        checked_evidence.append(Evidence(agent, run, value.seq, item, event_id))
    return tuple(checked_evidence)


def _links(values: Sequence[Link], name: str) -> tuple[Link, ...]:
    links: list[Link] = []
    for value in cast("tuple[object, ...]", several(values, name)):
        if not isinstance(value, Link):
            raise InvalidArgument(f"{name} must be several Link, found {describe(value)}")
        links.append(Link(text_of(value.type, f"{name}.type"), text_of(value.target, f"{name}.target")))
    return tuple(links)


_CHECKS: Mapping[object, Callable[..., object]] = {
    str: text_of,
    float: unit,
    datetime | None: _time,
    Source: _source,
    tuple[str, ...]: _texts,
    tuple[Evidence, ...]: _evidence,
    tuple[Link, ...]: _links,
}
"""How a field of the envelope is checked, by its type."""

_ENVELOPE_CHECKS = tuple((name, _CHECKS[hint]) for name, hint in get_type_hints(Envelope).items())
