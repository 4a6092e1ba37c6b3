"""How memories are shown: as JSON, as rows of a table, as a line, and where in the log they come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec

from agent_memory_log.cli.output import BAD, DIM, GOOD, NAME, WARN, Column, Output, Segment
from agent_memory_log.cli.run_names import run_name
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.events.event import format_timestamp
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory import Episode, Evidence, Outcome, Record
from agent_memory_log.memory.records.record import ENVELOPE_FIELDS
from agent_memory_log.wording import counted

_MOST_STARS = 5
_SOON_DAYS = 7
_UNSURE = 0.5

_WIDEST_NAME = 24

_COLUMNS = (
    Column("kind"),
    Column("key"),
    Column("memory"),
    Column("sure", number=True),
    Column("stars"),
    Column("days", number=True),
    Column("from"),
)
"""Of the table off a terminal, which has no styles."""

_SCOPE = Column("scope")

_SIGNS: dict[str, Segment] = {
    "written": ("+", GOOD),
    "changed": ("~", GOOD),
    "refreshed": ("=", DIM),
    "unchanged": ("=", DIM),
    "outdated": ("-", DIM),
    "forgotten": ("-", DIM),
    "archived": ("-", WARN),
    "blocked": ("!", BAD),
}


def evidence_name(evidence: Evidence) -> str:
    """An event as commands name it: ``AGENT/RUN#seq``."""
    return f"{run_name(evidence.agent, evidence.run)}#{evidence.seq}"


def source_name(record: Record) -> str:
    """Who says so: the first event it rests on and how many more there are, or who wrote it."""
    if not record.evidence:
        return f"{record.source.kind} {record.source.id}".rstrip()
    more = len(record.evidence) - 1
    return evidence_name(record.evidence[0]) + (f" +{more}" if more else "")


def evidence_map(evidence: Evidence) -> dict[str, JsonValue]:
    """Evidence as JSON."""
    return {
        "name": evidence_name(evidence),
        "agent": evidence.agent,
        "run": evidence.run,
        "seq": evidence.seq,
        "item": evidence.item,
    }


def time_text(time: datetime | None) -> str | None:
    """A time as JSON."""
    return None if time is None else format_timestamp(time)


def record_map(record: Record, now: datetime | None = None) -> dict[str, JsonValue]:
    """A record as JSON, every field of it, with what is computed: value, stars, ttl_left_days and supersedes."""
    return {
        "id": record.id,
        "kind": record.kind,
        "scope": record.scope,
        "key": record.key,
        "value": record.value,
        **{name: _shown(getattr(record, name)) for name in ENVELOPE_FIELDS},
        "stars": record.stars,
        "supersedes": list(record.supersedes),
        "ttl_left_days": record.ttl_left_days(now or datetime.now(UTC)),
        "created": time_text(record.created),
        "updated": time_text(record.updated),
        "status": record.status,
        "data": record.data.to_map(),
    }


def _shown(value: object) -> JsonValue:
    """A field of an envelope as JSON."""
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, Evidence):
        return evidence_map(value)
    if isinstance(value, msgspec.Struct):
        return {name: _shown(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_shown(item) for item in cast("tuple[object, ...]", value)]
    return cast("JsonValue", value)


def outcome_map(outcome: Outcome) -> dict[str, JsonValue]:
    """What became of a candidate, as JSON."""
    return {
        "action": outcome.action,
        "scope": outcome.scope,
        "kind": outcome.kind,
        "key": outcome.key,
        "reason": outcome.reason,
        "superseded": outcome.superseded,
        "evidence": [evidence_map(one) for one in outcome.evidence],
        "record": None if outcome.record is None else record_map(outcome.record),
    }


def stars(output: Output, record: Record) -> str:
    """The importance as stars, as wide for every record."""
    full, empty = ("★", "☆") if output.unicode else ("*", ".")
    return full * record.stars + empty * (_MOST_STARS - record.stars)


def words(record: Record) -> str:
    """What is remembered: the value of a keyed memory where its text says no more, else the text."""
    return record.value if record.key and record.text == record.data.describe() else record.text


def name_of(record: Record) -> str:
    """What a record is found by: its key; an episode's category."""
    return record.key or (record.data.category if isinstance(record.data, Episode) else "")


def write_records(output: Output, records: Sequence[Record]) -> None:
    """Write records, with their scopes where there are several: for a terminal, or as a table."""
    if output.terminal:
        write_blocks(output, records)
        return
    now = datetime.now(UTC)
    scoped = len({record.scope for record in records}) > 1
    rows: list[list[str]] = []
    for record in records:
        row = [record.scope] if scoped else []
        row += [record.kind, name_of(record), words(record), f"{record.confidence:.0%}", stars(output, record)]
        left = record.ttl_left_days(now)
        rows.append([*row, "-" if left is None else f"{left:,}", source_name(record)])
    output.table((_SCOPE, *_COLUMNS) if scoped else _COLUMNS, rows)


def write_blocks(output: Output, records: Sequence[Record], remarks: Sequence[str] | None = None) -> None:
    """Write records for a terminal, however narrow: what is remembered, and under it what there is to know of it."""
    now = datetime.now(UTC)
    scoped = len({record.scope for record in records}) > 1
    # In columns of the terminal: a Chinese character takes two.
    widths = [output.text(name_of(record)).cell_len for record in records]
    width = min(_WIDEST_NAME, max(widths, default=0))
    for at, record in enumerate(records):
        name = one_line(name_of(record)) + " " * (width - widths[at])
        output.hanging([(stars(output, record), WARN), "  ", (name, NAME), "  "], words(record))
        left = record.ttl_left_days(now)
        details: list[Segment | str] = [" " * (_MOST_STARS + 2), (record.kind, DIM)]
        details.append((f", {record.confidence:.0%} sure", WARN if record.confidence < _UNSURE else DIM))
        if left is not None and record.status == "active":
            details.append((f", {left:,} days left", WARN if left <= _SOON_DAYS else DIM))
        if scoped:
            details.append((f", scope {record.scope}", DIM))
        details.append((f", {remarks[at]}" if remarks else "", DIM))
        details.append((f", {source_name(record)}", DIM))
        output.line(*details)


def write_outcomes(output: Output, outcomes: Iterable[Outcome]) -> None:
    """Write what became of candidates, a line each. What was blocked has no value to show."""
    for one in outcomes:
        name = one.key or one.kind
        said = f"{one.action} {name}"
        if one.record is not None:
            said = f"{one.action} {name_of(one.record) or one.kind}: {words(one.record)}"
        where = f"   {evidence_name(one.evidence[0])}" if one.evidence else ""
        why = f"   {one.reason}" if one.reason else ""
        output.line("   ", _SIGNS[one.action], f" {said}", (why, WARN), (where, DIM))


def outcomes_text(outcomes: Sequence[Outcome]) -> str:
    """How many outcomes there are of each kind: ``2 written, 1 blocked``."""
    counts: dict[str, int] = {}
    for one in outcomes:
        counts[one.action] = counts.get(one.action, 0) + 1
    return ", ".join(f"{count:,} {action}" for action, count in counts.items()) or "nothing to remember"


def memories(count: int) -> str:
    """``1 memory``, ``12 memories``."""
    return "1 memory" if count == 1 else counted(count, "memorie")
