"""JSONL of our own: whole runs as lines of text, lossless, streaming and byte-stable.

A run is a header line, ``{"format":"agent-memory-log/1","agent":…,"run":…,"version":…,"meta":{…}}``, and then its
events in append order, a line each, as ``Event.to_map`` gives them. Exported, imported into an empty store and exported
again, the bytes are the same. A file may hold any number of runs.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import cast

import msgspec

from agent_memory_log.errors import DecodeError, InvalidArgument, RunDeleted, SchemaTooNew
from agent_memory_log.events import Event
from agent_memory_log.fields import describe
from agent_memory_log.importing import RunImport, decode_line, derived_event_id
from agent_memory_log.jsonvalue import JsonValue, encode_json
from agent_memory_log.payloads import Redacted, Redaction
from agent_memory_log.store import Store

FORMAT_NUMBER = 1
"""The newest format this release reads, and the one it writes."""

MAX_SEQ = 2**53 - 1
"""The largest seq that is read: every store and every JSON reader can hold it."""

_FORMAT = re.compile(r"agent-memory-log/(\d{1,9})", re.ASCII)

_PAGE_EVENTS = 500
_PAGE_RUNS = 500


class ImportedRun(msgspec.Struct, frozen=True):
    """What an import did to a run: of ``read`` events, ``inserted`` were new; ``version`` is the run's, after it."""

    agent: str
    run: str
    version: int
    read: int
    inserted: int


async def export_run(store: Store, agent: str, run: str) -> AsyncGenerator[bytes]:
    """The lines of a run, each ending in a newline; none for a run that holds no events.

    Reads a page at a time, up to the version at the start. An event redacted meanwhile may come out either way. Raises
    ``RunDeleted`` when the run is deleted meanwhile: the lines so far are not the whole run.

        async for line in export_run(store, "support-agent", "run-42"):
            file.write(line)
    """
    page = await store.load_run(agent, run, limit=_PAGE_EVENTS)
    version = page.version
    if not page.log:
        return
    yield _line(
        {
            "format": f"agent-memory-log/{FORMAT_NUMBER}",
            "agent": agent,
            "run": run,
            "version": version,
            "meta": page.meta,
        }
    )
    seq = page.log[0].seq - 1
    while True:
        for event in page.log:
            if event.seq != seq + 1:
                raise _deleted(agent, run, seq)
            yield _line(event.to_map())
            seq = event.seq
            if seq == version:
                return
        page = await store.load_run(agent, run, after=seq, limit=_PAGE_EVENTS)
        if not page.log:
            raise _deleted(agent, run, seq)


async def export_store(
    store: Store, *, agent: str | None = None, include_reserved: bool = False
) -> AsyncGenerator[bytes]:
    """The lines of every run, or of every run of ``agent``, ordered by agent and run; see ``export_run``.

    The library's own runs, of agents that begin with ``@``, are left out unless named or asked for with
    ``include_reserved``.
    """
    names: list[tuple[str, str]] = []
    cursor: str | None = None
    while True:
        page = await store.list_runs(agent, limit=_PAGE_RUNS, cursor=cursor, include_reserved=include_reserved)
        names += ((info.agent, info.run) for info in page.runs)
        cursor = page.cursor
        if cursor is None:
            break
    for name in sorted(names):
        async for line in export_run(store, *name):
            yield line


async def import_jsonl(
    store: Store, lines: Iterable[bytes | str], *, agent: str | None = None, run: str | None = None
) -> list[ImportedRun]:
    """Append the events of ``lines`` to their runs, in batches as they are read; one result for each header.

    ``agent`` and ``run`` take the place of those in the headers; with both, the first line may be an event: ours, or
    the original's with ``Type``, ``Timestamp`` and ``Data``. An event without an id gets one that stands for its run
    and place. Empty lines are passed over.

    A run that holds no events keeps the seqs of the file, if its version allows; otherwise the events go to the tail
    and redaction markers are changed to name the seqs their events have now. Importing again stores nothing, and an
    import that failed half way goes on.

    Raises ``DecodeError`` naming the line that is not what it should be, also where a run ends before its header's
    version; ``SchemaTooNew`` for a newer format; ``InvalidArgument`` for ``run`` with a file of several runs; and what
    ``append_events`` raises, naming the line. All events before the line are stored then, save that a batch with an
    ``EventConflict`` is refused whole.

        with open("runs.jsonl", "rb") as file:
            results = await import_jsonl(store, file)
    """
    reader = _Import(store, agent, run)
    number = 0
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            await reader.add(text, number)
        except (DecodeError, SchemaTooNew, InvalidArgument):
            await reader.flush()
            raise
    await reader.finish(f"the file ends after line {number}")
    return reader.results


class _Import:
    """The state of one import: the run being read, and what was done to those before it."""

    def __init__(self, store: Store, agent: str | None, run: str | None) -> None:
        self.results: list[ImportedRun] = []
        self._store = store
        self._agent = agent
        self._run = run
        self._current: _RunLines | None = None

    async def add(self, text: bytes | str, number: int) -> None:
        found = decode_line(text, number)
        if "format" in found and not found.keys() & {"type", "Type"}:
            await self._begin(_read_header(found, number), number)
            return
        if self._current is None:
            if self._agent is None or self._run is None:
                raise DecodeError(
                    f"line {number} is not the header of a run: events without one need both agent and run given"
                )
            importing = RunImport(self._store, self._agent, self._run)
            self._current = _RunLines(importing, source=self._run, version=None)
        await self._current.add(found, len(text), number)

    async def _begin(self, header: _Header, number: int) -> None:
        await self.finish(f"line {number} begins another run")
        if self._run is not None and self.results:
            raise InvalidArgument(
                f"line {number} begins another run, but all were to go to the run {self._run!r}: leave run out"
            )
        importing = RunImport(self._store, self._agent or header.agent, self._run or header.run, meta=header.meta)
        self._current = _RunLines(importing, source=header.run, version=header.version)

    async def flush(self) -> None:
        if self._current is not None:
            await self._current.flush()

    async def finish(self, where: str) -> None:
        current, self._current = self._current, None
        if current is not None:
            self.results.append(await current.finish(where))


class _RunLines:
    """The events of one run of the file, on their way to the store."""

    def __init__(self, importing: RunImport, *, source: str, version: int | None) -> None:
        self._importing = importing
        self._source = source
        self._version = version
        self._read = 0
        self._first_seq = 0
        self._unplaced: list[int] = []
        self._moved = False
        self._redacted: dict[int, int] = {}

    async def add(self, found: Mapping[str, object], size: int, number: int) -> None:
        try:
            event = Event.from_map(found)
        except DecodeError as error:
            raise DecodeError(f"line {number}: {error}") from error
        if not self._read:
            self._first_seq = event.seq
        seq = self._first_seq + self._read if self._first_seq else 0
        if event.seq > MAX_SEQ:
            raise DecodeError(f"line {number}: the seq {event.seq} is too large")
        if event.seq != seq:
            raise DecodeError(f"line {number}: the seq must be {seq or 'left out'}, found {event.seq or 'none'}")
        if self._version is not None and seq > self._version:
            raise DecodeError(f"line {number}: seq {seq} is beyond the version {self._version} of the run's header")
        place = (self._first_seq or 1) + self._read
        self._read += 1
        if not event.event_id:
            event_id = derived_event_id("jsonl", self._source, place)
            event = msgspec.structs.replace(event, event_id=event_id)
        if isinstance(event.data, Redaction):
            await self.flush()
            event = self._renamed(event, event.data)
        self._importing.add(event, size=size, where=f"line {number}")
        self._unplaced.append(place)
        if self._importing.full:
            await self.flush()

    async def flush(self) -> None:
        unplaced, self._unplaced = self._unplaced, []
        for place, stored in zip(unplaced, await self._importing.flush(), strict=True):
            self._moved = self._moved or stored.seq != place
            if isinstance(stored.data, Redacted):
                self._redacted[place] = stored.seq

    async def finish(self, where: str) -> ImportedRun:
        await self.flush()
        importing = self._importing
        is_whole = not self._first_seq or self._first_seq + self._read - 1 == self._version
        if self._version is not None and not (self._read and is_whole):
            raise DecodeError(
                f"{where}, but {importing.agent}/{importing.run} has only {self._read} events and not all up to "
                f"its header's version {self._version}; those are stored"
            )
        return ImportedRun(importing.agent, importing.run, importing.version, self._read, importing.inserted)

    def _renamed(self, event: Event, marker: Redaction) -> Event:
        """The marker with the seqs its events have in this store; it would mask others with those it came with."""
        if not self._moved:
            return event
        seqs = tuple(self._redacted[seq] for seq in marker.seqs if seq in self._redacted)
        return msgspec.structs.replace(event, data=Redaction(seqs=seqs, reason=marker.reason))


class _Header(msgspec.Struct, frozen=True):
    agent: str
    run: str
    version: int
    meta: Mapping[str, JsonValue]


def _read_header(found: Mapping[str, object], number: int) -> _Header:
    written = found["format"]
    match = _FORMAT.fullmatch(written) if isinstance(written, str) else None
    if match is None:
        raise DecodeError(f"line {number}: format must be agent-memory-log/{FORMAT_NUMBER}, found {describe(written)}")
    format_number = int(match[1])
    if format_number > FORMAT_NUMBER:
        raise SchemaTooNew(
            f"line {number}: written as {written}; this release reads up to {FORMAT_NUMBER}: upgrade agent-memory-log",
            found=format_number,
            known=FORMAT_NUMBER,
        )
    agent, run, version = found.get("agent"), found.get("run"), found.get("version")
    for name, value in (("agent", agent), ("run", run)):
        if not isinstance(value, str) or not value:
            raise DecodeError(f"line {number}: the header's {name} must be non-empty text, found {describe(value)}")
    if type(version) is not int or not 1 <= version <= MAX_SEQ:
        raise DecodeError(f"line {number}: the header's version must be an integer from 1, found {describe(version)}")
    meta = found.get("meta")
    if not isinstance(meta, Mapping):
        raise DecodeError(f"line {number}: the header's meta must be a map, found {describe(meta)}")
    return _Header(cast("str", agent), cast("str", run), version, cast("Mapping[str, JsonValue]", meta))


def _line(value: Mapping[str, JsonValue]) -> bytes:
    return encode_json(value) + b"\n"


def _deleted(agent: str, run: str, seq: int) -> RunDeleted:
    return RunDeleted(f"{agent}/{run} was deleted while it was exported, after seq {seq}")
