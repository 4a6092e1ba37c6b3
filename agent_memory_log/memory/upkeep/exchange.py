"""Exports and imports memory as JSONL: a header line, then one line for each record.

The header has the number of records and the SHA-256 of their lines, newlines included. An import refuses a file that
was truncated or changed. A header without the SHA-256 is valid too, for files written by hand. Imported records pass
the same checks as other candidates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from functools import partial

import msgspec

from agent_memory_log.errors import DecodeError, InvalidArgument, SchemaTooNew
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.memory.learning.deciding import SUPERSEDES
from agent_memory_log.memory.learning.writing import write
from agent_memory_log.memory.operations import ExportJsonl, ImportJsonl
from agent_memory_log.memory.records.candidates import Candidate, checked
from agent_memory_log.memory.records.kinds import read_kind
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.records.record import (
    MERGES,
    Envelope,
    Evidence,
    Record,
    Source,
    envelope_of,
    links_without,
    own_text,
)
from agent_memory_log.memory.records.reports.outcomes import WriteReport
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.state import State
from agent_memory_log.steps import Steps
from agent_memory_log.transfer.importing import decode_line, line_bytes

_FORMAT = "agent-memory-log-records"
FORMAT_NUMBER = 1
_MAX_DIGITS = 9


class _Line(Envelope, frozen=True, omit_defaults=True):
    kind: str
    data: Mapping[str, JsonValue]
    scope: str = ""


def export_jsonl(context: Context, call: ExportJsonl) -> Steps[bytes]:
    """Return the active records of each scope, in the order in which they were made."""
    lines: list[bytes] = []
    for scope in context.readable(call.scopes):
        subject = context.subject(scope)
        yield from subject.refresh()
        records = subject.ask(partial(_active, scope, context.hooks.now()))
        lines += (encode_json(_line(record, subject.agent, seq)) for seq, record in records)
    body = b"".join(line + b"\n" for line in lines)
    digest = hashlib.sha256(body).hexdigest()
    header = encode_json({"format": f"{_FORMAT}/{FORMAT_NUMBER}", "records": len(lines), "sha256": digest})
    return header + b"\n" + body


def _active(scope: str, now: datetime, state: State) -> list[tuple[int, Record]]:
    lives = (live for live in state.records.values() if not live.is_expired(now))
    return [(live.seq, live.record_as(scope, "active")) for live in lives]


def _line(record: Record, agent: str, seq: int) -> _Line:
    """Return the line of a record.

    A record without evidence cites its own event, so that an import can recognize a forgotten record.
    """
    fields = envelope_of(
        record,
        evidence=record.evidence or (Evidence(agent, STREAM_RUN, seq, event_id=record.id),),
        links=links_without(record.links, {SUPERSEDES}),
        valid_from=record.valid_from or record.created,
    )
    return _Line(record.kind, record.data.to_map(), record.scope, **fields)


def import_jsonl(context: Context, call: ImportJsonl) -> Steps[WriteReport]:
    """Write the records of an export. If a line is invalid, raises ``DecodeError`` and writes no record."""
    return (
        yield from write(
            context, read_jsonl(call.data), origin="import", phase="import", kept_links=frozenset({MERGES})
        )
    )


def read_jsonl(data: bytes) -> list[Candidate]:
    """Return the candidates of an export. Raises ``DecodeError`` with the invalid line, or ``SchemaTooNew``."""
    if not isinstance(data, bytes):
        raise DecodeError(f"an export must be bytes, got {describe(data)}")
    candidates: list[Candidate] = []
    header: Mapping[str, JsonValue] | None = None
    sha256 = hashlib.sha256()
    for number, text in enumerate(data.split(b"\n"), 1):
        if not line_bytes(text):
            continue
        fields = decode_line(text, number)
        if header is None:
            _check_header(fields, number)
            header = fields
            continue
        sha256.update(line_bytes(text) + b"\n")
        try:
            line = msgspec.convert(fields, _Line, str_keys=True)
            candidates.append(checked(_candidate(line), may_be_copy=True))
        except (msgspec.ValidationError, RecursionError, InvalidArgument) as error:
            raise DecodeError(f"line {number} is not a record: {error}") from error
    if header is not None and "sha256" in header and header["sha256"] != sha256.hexdigest():
        raise DecodeError(
            f"the SHA-256 of the {len(candidates)} records does not match the header, which announces "
            f"{header.get('records')} records: the file was truncated or changed; export again, or remove sha256 from "
            "the header"
        )
    return candidates


def _check_header(header: Mapping[str, JsonValue], number: int) -> None:
    name = header.get("format")
    head, _, version = name.partition("/") if isinstance(name, str) else ("", "", "")
    if head != _FORMAT or not (version.isascii() and version.isdigit()):
        raise DecodeError(f"line {number} must be a header with the format {_FORMAT}, got {describe(header)}")
    if len(version) > _MAX_DIGITS or int(version) > FORMAT_NUMBER:
        raise SchemaTooNew(
            f"line {number}: the records have format {version[:_MAX_DIGITS]}; this release reads formats up to "
            f"{FORMAT_NUMBER}: upgrade agent-memory-log",
            actual=int(version[:_MAX_DIGITS]),
            supported=FORMAT_NUMBER,
        )


def _candidate(line: _Line) -> Candidate:
    data = read_kind(line.kind, line.data)
    source = Source("import", line.source.id, line.source.reliability)
    return Candidate(data, line.scope, **envelope_of(line, text=own_text(line, data), source=source))
