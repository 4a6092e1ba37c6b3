"""Formats memories, outcomes and evidence as JSON, table rows and lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec
import typer

from agent_memory_log.cli.output import BAD, DIM, GOOD, NAME, WARN, Column, Output, Segment
from agent_memory_log.cli.run_names import run_name
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.events.event import format_timestamp
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory import Consent, Episode, Evidence, Outcome, Record, WriteReport
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
"""The columns if the output is not a terminal. They have no styles."""

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
    """Return the name of an event, ``AGENT/RUN#seq``."""
    return f"{run_name(evidence.agent, evidence.run)}#{evidence.seq}"


def source_name(record: Record) -> str:
    """Return the first event of the evidence and the number of other events, or the source if there is no evidence."""
    if not record.evidence:
        return f"{record.source.kind} {record.source.id}".rstrip()
    more = len(record.evidence) - 1
    return evidence_name(record.evidence[0]) + (f" +{more}" if more else "")


def evidence_map(evidence: Evidence) -> dict[str, JsonValue]:
    """Return evidence as JSON."""
    return {
        "name": evidence_name(evidence),
        "agent": evidence.agent,
        "run": evidence.run,
        "seq": evidence.seq,
        "item": evidence.item,
    }


def time_text(time: datetime | None) -> str | None:
    """Return a time as text for JSON, or None for no time."""
    return None if time is None else format_timestamp(time)


def record_map(record: Record, now: datetime | None = None) -> dict[str, JsonValue]:
    """Return a record as JSON, with all its fields and the computed value, stars, ttl_left_days and supersedes."""
    return {
        "id": record.id,
        "kind": record.kind,
        "scope": record.scope,
        "key": record.key,
        "value": record.value,
        **{name: _field_json(getattr(record, name)) for name in ENVELOPE_FIELDS},
        "stars": record.stars,
        "supersedes": list(record.supersedes),
        "ttl_left_days": record.ttl_left_days(now or datetime.now(UTC)),
        "created": time_text(record.created),
        "updated": time_text(record.updated),
        "status": record.status,
        "data": record.data.to_map(),
    }


def _field_json(value: object) -> JsonValue:
    """Return a field of an envelope as JSON."""
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, Evidence):
        return evidence_map(value)
    if isinstance(value, msgspec.Struct):
        return {name: _field_json(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_field_json(item) for item in cast("tuple[object, ...]", value)]
    return cast("JsonValue", value)


def outcome_map(outcome: Outcome) -> dict[str, JsonValue]:
    """Return the outcome of a candidate as JSON."""
    return {
        "action": outcome.action,
        "scope": outcome.scope,
        "kind": outcome.kind,
        "key": outcome.key,
        "reason": outcome.reason,
        "superseded": outcome.superseded,
        "evidence": [evidence_map(evidence) for evidence in outcome.evidence],
        "record": None if outcome.record is None else record_map(outcome.record),
    }


def stars(output: Output, record: Record) -> str:
    """Return the importance as a row of filled and empty stars. A consent has none."""
    if isinstance(record.data, Consent):
        return ""
    full, empty = ("★", "☆") if output.unicode else ("*", ".")
    return full * record.stars + empty * (_MOST_STARS - record.stars)


def sure(record: Record) -> str:
    """Return the confidence as a percentage. A consent has none."""
    return "" if isinstance(record.data, Consent) else f"{record.confidence:.0%}"


def words(record: Record) -> str:
    """Return the value of a keyed memory if its text is only generated from the value, else the text."""
    return record.value if record.key and record.text == record.data.describe() else record.text


def name_of(record: Record) -> str:
    """Return the key of a record, or the category of an episode."""
    return record.key or (record.data.category if isinstance(record.data, Episode) else "")


def write_records(output: Output, records: Sequence[Record]) -> None:
    """Write records as blocks on a terminal, or as a table. Scopes are shown only if there are several."""
    if output.terminal:
        write_blocks(output, records)
        return
    now = datetime.now(UTC)
    scoped = len({record.scope for record in records}) > 1
    rows: list[list[str]] = []
    for record in records:
        row = [record.scope] if scoped else []
        row += [record.kind, name_of(record), words(record), sure(record), stars(output, record)]
        left = record.ttl_left_days(now)
        rows.append([*row, "-" if left is None else f"{left:,}", source_name(record)])
    output.table((_SCOPE, *_COLUMNS) if scoped else _COLUMNS, rows)


def write_blocks(output: Output, records: Sequence[Record], remarks: Sequence[str] | None = None) -> None:
    """Write each record for a terminal of any width: its text, and a second line with its details."""
    now = datetime.now(UTC)
    scoped = len({record.scope for record in records}) > 1
    # Widths are terminal columns, because a Chinese character takes two.
    widths = [output.text(name_of(record)).cell_len for record in records]
    width = min(_WIDEST_NAME, max(widths, default=0))
    for at, record in enumerate(records):
        name = one_line(name_of(record)) + " " * (width - widths[at])
        output.hanging([(f"{stars(output, record):<{_MOST_STARS}}", WARN), "  ", (name, NAME), "  "], words(record))
        left = record.ttl_left_days(now)
        details: list[Segment | str] = [" " * (_MOST_STARS + 2), (record.kind, DIM)]
        if sure(record):
            details.append((f", {sure(record)} sure", WARN if record.confidence < _UNSURE else DIM))
        if left is not None and record.status == "active":
            details.append((f", {left:,} days left", WARN if left <= _SOON_DAYS else DIM))
        if scoped:
            details.append((f", scope {record.scope}", DIM))
        details.append((f", {remarks[at]}" if remarks else "", DIM))
        details.append((f", {source_name(record)}", DIM))
        output.line(*details)


def write_outcomes(output: Output, outcomes: Iterable[Outcome]) -> None:
    """Write a line for each outcome. A blocked candidate has no record, so its value is not shown."""
    for outcome in outcomes:
        text = f"{outcome.action} {outcome.key or outcome.kind}"
        if outcome.record is not None:
            text = f"{outcome.action} {name_of(outcome.record) or outcome.kind}: {words(outcome.record)}"
        event = f"   {evidence_name(outcome.evidence[0])}" if outcome.evidence else ""
        reason = f"   {outcome.reason}" if outcome.reason else ""
        output.line("   ", _SIGNS[outcome.action], f" {text}", (reason, WARN), (event, DIM))


def outcomes_text(outcomes: Sequence[Outcome]) -> str:
    """Return the number of outcomes of each kind, such as ``2 written, 1 blocked``."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome.action] = counts.get(outcome.action, 0) + 1
    return ", ".join(f"{count:,} {action}" for action, count in counts.items()) or "nothing to remember"


def report_write(report: WriteReport, *, as_json: bool) -> None:
    """Write the result of a write. Raises ``typer.Exit`` if the write was stopped."""
    output = Output()
    if as_json:
        outcomes = [outcome_map(outcome) for outcome in report.outcomes]
        output.json({"status": report.status, "stop_reason": report.stop_reason, "outcomes": outcomes})
    elif report.status == "stopped":
        output.line((f"{output.cross} ", BAD), f"stopped: {report.stop_reason}")
    else:
        output.line((f"{output.tick} ", GOOD), outcomes_text(report.outcomes))
        write_outcomes(output, report.outcomes)
    output.flush()
    if report.status == "stopped":
        raise typer.Exit(1)


def memories(count: int) -> str:
    """Return the number as text, such as ``1 memory`` or ``12 memories``."""
    return "1 memory" if count == 1 else counted(count, "memorie")
