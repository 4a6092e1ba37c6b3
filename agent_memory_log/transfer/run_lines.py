"""Reads the lines of one run in a JSONL file, the header and the events, and appends the events to a store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

import msgspec

from agent_memory_log.errors import DecodeError, SchemaTooNew
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import Redacted, Redaction
from agent_memory_log.steps import Steps
from agent_memory_log.store import MAX_FIRST_SEQ
from agent_memory_log.transfer.endline import FORMAT, FORMAT_NUMBER
from agent_memory_log.transfer.importing import ImportedRun, RunImport, derived_event_id

_MAX_SEQ = 2**53 - 1
"""The largest version accepted in a header. Every store and every JSON reader can hold it."""

_FORMAT = re.compile(rf"{FORMAT}/(\d{{1,9}})", re.ASCII)


class RunLines:
    """The import of one run's event lines."""

    def __init__(self, importing: RunImport, *, source: str, version: int | None, verified: bool) -> None:
        self._importing = importing
        self._source = source
        self._version = version
        self._verified = verified
        self._read = 0
        self._first_seq = 0
        self._pending: list[int] = []
        self._moved = False
        self._redacted: dict[int, int] = {}

    def add(self, line: Mapping[str, object], size: int, number: int) -> Steps[None]:
        """Add the event on line ``number``, a line of ``size`` bytes. Raises ``DecodeError`` that names the line."""
        try:
            event = Event.from_map(line)
        except DecodeError as error:
            raise DecodeError(f"line {number}: {error}") from error
        if not self._read:
            self._first_seq = event.seq
        seq = self._first_seq + self._read if self._first_seq else 0
        if self._first_seq > MAX_FIRST_SEQ:
            raise DecodeError(
                f"line {number}: the run begins at seq {event.seq}; the largest first seq is {MAX_FIRST_SEQ}"
            )
        if event.seq != seq:
            raise DecodeError(f"line {number}: the seq must be {seq or 'left out'}, got {event.seq or 'no seq'}")
        if self._version is not None and seq > self._version:
            raise DecodeError(f"line {number}: seq {seq} is above the version {self._version} in the run's header")
        position = (self._first_seq or 1) + self._read
        self._read += 1
        if not event.event_id:
            event_id = derived_event_id("jsonl", self._source, position)
            event = msgspec.structs.replace(event, event_id=event_id)
        if isinstance(event.data, Redaction):
            yield from self.flush()
            event = self._with_stored_seqs(event, event.data)
        self._importing.add(event, size=size, path=f"line {number}")
        self._pending.append(position)
        if self._importing.full:
            yield from self.flush()

    def flush(self) -> Steps[None]:
        """Append the events added since the last flush."""
        positions, self._pending = self._pending, []
        for position, stored in zip(positions, (yield from self._importing.flush()), strict=True):
            self._moved = self._moved or stored.seq != position
            if isinstance(stored.data, Redacted):
                self._redacted[position] = stored.seq

    def finish(self, ending: str) -> Steps[ImportedRun]:
        """Append the remaining events. If events are missing, raise a ``DecodeError`` that begins with ``ending``."""
        yield from self.flush()
        importing = self._importing
        is_whole = not self._first_seq or self._first_seq + self._read - 1 == self._version
        if self._version is not None and not (self._read and is_whole):
            raise DecodeError(
                f"{ending}, but {importing.agent}/{importing.run} has only {self._read} events, and its header has the "
                f"version {self._version}: events are missing; the events before are stored"
            )
        return ImportedRun(
            importing.agent, importing.run, importing.version, self._read, importing.inserted, self._verified
        )

    def _with_stored_seqs(self, event: Event, marker: Redaction) -> Event:
        """Return the marker with the seqs of its events in this store. The file's seqs may name other events here."""
        if not self._moved:
            return event
        seqs = tuple(self._redacted[seq] for seq in marker.seqs if seq in self._redacted)
        return msgspec.structs.replace(event, data=Redaction(seqs=seqs, reason=marker.reason))


class Header(msgspec.Struct, frozen=True):
    """The first line of a run."""

    format_number: int
    agent: str
    run: str
    version: int
    meta: Mapping[str, JsonValue]


def read_header(line: Mapping[str, object], number: int) -> Header:
    """Read the header on line ``number``. Raises ``DecodeError`` or ``SchemaTooNew``."""
    written = line["format"]
    match = _FORMAT.fullmatch(written) if isinstance(written, str) else None
    if match is None or not int(match[1]):
        raise DecodeError(f"line {number}: format must be {FORMAT}/{FORMAT_NUMBER}, got {describe(written)}")
    format_number = int(match[1])
    if format_number > FORMAT_NUMBER:
        raise SchemaTooNew(
            f"line {number}: format is {written}; this release reads up to {FORMAT_NUMBER}: upgrade agent-memory-log",
            actual=format_number,
            supported=FORMAT_NUMBER,
        )
    agent, run, version = line.get("agent"), line.get("run"), line.get("version")
    for name, value in (("agent", agent), ("run", run)):
        if not isinstance(value, str) or not value:
            raise DecodeError(f"line {number}: the header's {name} must be non-empty text, got {describe(value)}")
    if type(version) is not int or not 1 <= version <= _MAX_SEQ:
        raise DecodeError(f"line {number}: the header's version must be an integer from 1, got {describe(version)}")
    meta = line.get("meta")
    if not isinstance(meta, Mapping):
        raise DecodeError(f"line {number}: the header's meta must be a map, got {describe(meta)}")
    return Header(format_number, cast("str", agent), cast("str", run), version, cast("Mapping[str, JsonValue]", meta))
