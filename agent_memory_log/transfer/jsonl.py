"""JSONL of our own: whole runs as lines of text, lossless, streaming and byte-stable.

A run is a header line, ``{"format":"agent-memory-log/2","agent":…,"run":…,"version":…,"meta":{…}}``, and then its
events in append order, a line each, as ``Event.to_map`` gives them. An export of any number of runs ends with an end
line, see ``endline.py``; another export may follow it. Exported, imported into an empty store and exported again, the
bytes are the same.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from typing import cast

import msgspec

from agent_memory_log.errors import DecodeError, InvalidArgument, InvalidEvent, RunDeleted, SchemaTooNew
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.payloads import Redacted, Redaction
from agent_memory_log.events.reserved import check_not_reserved
from agent_memory_log.steps import all_runs, run_async
from agent_memory_log.store import MAX_FIRST_SEQ, Store
from agent_memory_log.transfer.endline import (
    FORMAT,
    FORMAT_NUMBER,
    OPEN_FORMAT_NUMBER,
    LineDigest,
    begins_end_line,
    format_of,
    is_end_line,
)
from agent_memory_log.transfer.importing import RunImport, decode_line, derived_event_id, line_bytes

_MAX_SEQ = 2**53 - 1
# The largest seq that is read: every store and every JSON reader can hold it.

_FORMAT = re.compile(rf"{FORMAT}/(\d{{1,9}})", re.ASCII)

_PAGE_EVENTS = 500


class ImportedRun(msgspec.Struct, frozen=True):
    """What an import did to a run: of ``read`` events, ``inserted`` were new; ``version`` is the run's, after it.

    ``verified``: an end line vouches for its lines.
    """

    agent: str
    run: str
    version: int
    read: int
    inserted: int
    verified: bool = False


async def export_run(store: Store, agent: str, run: str) -> AsyncGenerator[bytes]:
    """The lines of a run and their end line, each ending in a newline; none for a run that holds no events.

    Reads a page at a time, up to the version at the start. An event redacted meanwhile may come out either way. Raises
    ``RunDeleted`` when the run is deleted meanwhile: the lines so far are not the whole run.

        async for line in export_run(store, "support-agent", "run-42"):
            file.write(line)
    """
    async for line in _ended(_lines_of_run(store, agent, run)):
        yield line


async def _ended(lines: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """The lines, and their end line if there are any."""
    digest: LineDigest | None = None
    async for line in lines:
        digest = digest or LineDigest()
        digest.add(line, format_of(line))
        yield line
    if digest is not None:
        yield digest.end_line()


async def _lines_of_run(store: Store, agent: str, run: str) -> AsyncGenerator[bytes]:
    page = await store.load_run(agent, run, limit=_PAGE_EVENTS)
    version = page.version
    if not page.log:
        return
    yield _line(
        {
            "format": f"{FORMAT}/{FORMAT_NUMBER}",
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
    """The lines of every run, or of every run of ``agent``, ordered by agent and run, and one end line.

    See ``export_run``.

    The library's own runs, of agents that begin with ``@``, are left out unless named or asked for with
    ``include_reserved``.
    """
    async for line in _ended(_lines_of_store(store, agent, include_reserved=include_reserved)):
        yield line


async def _lines_of_store(store: Store, agent: str | None, *, include_reserved: bool) -> AsyncGenerator[bytes]:
    runs = await run_async(all_runs(agent, reserved=include_reserved), store)
    for name in sorted((info.agent, info.run) for info in runs):
        async for line in _lines_of_run(store, *name):
            yield line


def check_jsonl(lines: Iterable[bytes | str]) -> None:
    """Read an export to its end and check its end lines; what the events are is not looked at.

    Call it before ``import_jsonl`` where the lines can be read twice: that stores what it has read before it meets a
    damaged end. Lines of the format that has no end line pass. Raises ``DecodeError`` naming the line.

        with open("runs.jsonl", "rb") as file:
            check_jsonl(file)
            file.seek(0)
            results = await import_jsonl(store, file)
    """
    digest = LineDigest()
    number = 0
    for number, text in enumerate(lines, 1):
        line = line_bytes(text)
        if begins_end_line(line):
            digest.check_end(decode_line(line, number), number)
            continue
        format_number = format_of(line)
        if format_number is not None and format_number > FORMAT_NUMBER:
            return  # the import says that it is too new
        digest.add(line, format_number)
    digest.check_finished(number)


async def import_jsonl(
    store: Store,
    lines: Iterable[bytes | str],
    *,
    agent: str | None = None,
    run: str | None = None,
    reserved: bool = False,
) -> list[ImportedRun]:
    """Append the events of ``lines`` to their runs, in batches as they are read; one result for each header.

    ``agent`` and ``run`` take the place of those in the headers; with both, the first line may be an event: ours, or
    the original's with ``Type``, ``Timestamp`` and ``Data``. An event without an id gets one that stands for its run
    and place. Empty lines are passed over. ``reserved``, an operator's right, takes in agents that begin with ``@`` and
    event types that begin with ``memory_``, which are the library's own: whoever writes them decides what memory says.

    A run that holds no events keeps the seqs of the file, if its version allows; otherwise the events go to the tail
    and redaction markers are changed to name the seqs their events have now. Importing again stores nothing, and an
    import that failed half way goes on.

    Raises ``DecodeError`` naming the line that is not what it should be, also where a run ends before its header's
    version, an export has no end line, or an end line is about other lines (``check_jsonl`` finds these two before
    anything is stored); ``SchemaTooNew`` for a newer format; ``InvalidArgument`` for ``run`` with a file of several
    runs, and for ``agent`` where two runs would become one; and what ``append_events`` raises, naming the line. All
    events before the line are stored then, save that a batch with an ``EventConflict`` is refused whole.

        with open("runs.jsonl", "rb") as file:
            results = await import_jsonl(store, file)
    """
    reader = _Import(store, agent, run, reserved=reserved)
    number = 0
    for number, text in enumerate(lines, 1):
        if not line_bytes(text):
            continue
        try:
            await reader.add(text, number)
        except (DecodeError, SchemaTooNew, InvalidArgument):
            await reader.flush()
            raise
    await reader.finish_file(number)
    return reader.results


class _Import:
    """The state of one import: the run being read, and what was done to those before it."""

    def __init__(self, store: Store, agent: str | None, run: str | None, *, reserved: bool) -> None:
        self.results: list[ImportedRun] = []
        self._store = store
        self._agent = agent
        self._run = run
        self._reserved = reserved
        self._current: _RunLines | None = None
        self._digest = LineDigest()
        self._sources: dict[tuple[str, str], tuple[str, str]] = {}

    async def add(self, text: bytes | str, number: int) -> None:
        found = decode_line(text, number)
        if is_end_line(found):
            await self.finish(f"the export ends at line {number}")
            self._digest.check_end(found, number)
            return
        if "format" in found and not found.keys() & {"type", "Type"}:
            header = _read_header(found, number)
            self._digest.add(text, header.format_number)
            await self._begin(header, number)
            return
        self._digest.add(text, None)
        if self._current is None:
            if self._agent is None or self._run is None:
                raise DecodeError(
                    f"line {number} is not the header of a run: events without one need both agent and run given"
                )
            importing = RunImport(self._store, self._agent, self._run, reserved=self._reserved)
            self._current = _RunLines(importing, source=self._run, version=None, verified=False)
        await self._current.add(found, len(text), number)

    async def _begin(self, header: _Header, number: int) -> None:
        await self.finish(f"line {number} begins another run")
        if self._run is not None and self.results:
            raise InvalidArgument(
                f"line {number} begins another run, but all were to go to the run {self._run!r}: leave run out"
            )
        agent, run = self._agent or header.agent, self._run or header.run
        try:
            check_not_reserved(agent, (), reserved=self._reserved)
        except InvalidEvent as error:
            raise InvalidEvent(f"line {number}: {error}", field=error.field) from error
        source = self._sources.setdefault((agent, run), (header.agent, header.run))
        if source != (header.agent, header.run):
            raise InvalidArgument(
                f"line {number} begins {header.agent}/{header.run}, but what was {'/'.join(source)} is {agent}/{run} "
                "already: import the runs of each agent by themselves"
            )
        importing = RunImport(self._store, agent, run, meta=header.meta, reserved=self._reserved)
        self._current = _RunLines(
            importing,
            source=header.run,
            version=header.version,
            verified=header.format_number > OPEN_FORMAT_NUMBER,  # or else the file is refused at its end
        )

    async def flush(self) -> None:
        if self._current is not None:
            await self._current.flush()

    async def finish_file(self, number: int) -> None:
        await self.finish(f"the file ends after line {number}")
        self._digest.check_finished(number)

    async def finish(self, where: str) -> None:
        current, self._current = self._current, None
        if current is not None:
            self.results.append(await current.finish(where))


class _RunLines:
    """The events of one run of the file, on their way to the store."""

    def __init__(self, importing: RunImport, *, source: str, version: int | None, verified: bool) -> None:
        self._importing = importing
        self._source = source
        self._version = version
        self._verified = verified
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
        if self._first_seq > MAX_FIRST_SEQ:
            raise DecodeError(
                f"line {number}: the run begins at seq {event.seq}; the largest it can begin with is {MAX_FIRST_SEQ}"
            )
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
        return ImportedRun(
            importing.agent, importing.run, importing.version, self._read, importing.inserted, self._verified
        )

    def _renamed(self, event: Event, marker: Redaction) -> Event:
        """The marker with the seqs its events have in this store; it would mask others with those it came with."""
        if not self._moved:
            return event
        seqs = tuple(self._redacted[seq] for seq in marker.seqs if seq in self._redacted)
        return msgspec.structs.replace(event, data=Redaction(seqs=seqs, reason=marker.reason))


class _Header(msgspec.Struct, frozen=True):
    format_number: int
    agent: str
    run: str
    version: int
    meta: Mapping[str, JsonValue]


def _read_header(found: Mapping[str, object], number: int) -> _Header:
    written = found["format"]
    match = _FORMAT.fullmatch(written) if isinstance(written, str) else None
    if match is None or not int(match[1]):
        raise DecodeError(f"line {number}: format must be {FORMAT}/{FORMAT_NUMBER}, found {describe(written)}")
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
    if type(version) is not int or not 1 <= version <= _MAX_SEQ:
        raise DecodeError(f"line {number}: the header's version must be an integer from 1, found {describe(version)}")
    meta = found.get("meta")
    if not isinstance(meta, Mapping):
        raise DecodeError(f"line {number}: the header's meta must be a map, found {describe(meta)}")
    return _Header(format_number, cast("str", agent), cast("str", run), version, cast("Mapping[str, JsonValue]", meta))


def _line(value: Mapping[str, JsonValue]) -> bytes:
    return encode_json(value) + b"\n"


def _deleted(agent: str, run: str, seq: int) -> RunDeleted:
    return RunDeleted(f"{agent}/{run} was deleted while it was exported, after seq {seq}")
