"""JSONL of our own: whole runs as lines of text, lossless, streaming and byte-stable.

A run is a header line, ``{"format":"agent-memory-log/2","agent":…,"run":…,"version":…,"meta":{…}}``, and then its
events in append order, a line each, as ``Event.to_map`` gives them. An export of any number of runs ends with an end
line, see ``endline.py``; another export may follow it. Exported, imported into an empty store and exported again, the
bytes are the same.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from typing import Any

from agent_memory_log.errors import DecodeError, InvalidArgument, InvalidEvent, RunDeleted, SchemaTooNew
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.events.reserved import check_not_reserved
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, all_runs, load, run_async, run_sync
from agent_memory_log.store import RunInfo, Store, SyncStore
from agent_memory_log.transfer.endline import (
    FORMAT,
    FORMAT_NUMBER,
    OPEN_FORMAT_NUMBER,
    LineDigest,
    begins_end_line,
    format_of,
    is_end_line,
)
from agent_memory_log.transfer.importing import RunImport, decode_line, line_bytes
from agent_memory_log.transfer.run_lines import Header, ImportedRun, RunLines, read_header

_PAGE_EVENTS = 500


async def export_run(store: Store, agent: str, run: str) -> AsyncGenerator[bytes]:
    """The lines of a run and their end line, each ending in a newline; none for a run that holds no events.

    Reads a page at a time, up to the version at the start. An event redacted meanwhile may come out either way. Raises
    ``RunDeleted`` when the run is deleted meanwhile: the lines so far are not the whole run.

        async for line in export_run(store, "support-agent", "run-42"):
            file.write(line)
    """
    async for line in _stream_async(_lines([(agent, run)]), store):
        yield line


def export_run_sync(store: SyncStore, agent: str, run: str) -> Generator[bytes]:
    """``export_run`` without ``await``."""
    return _stream_sync(_lines([(agent, run)]), store)


async def export_store(
    store: Store, *, agent: str | None = None, include_reserved: bool = False
) -> AsyncGenerator[bytes]:
    """The lines of every run, or of every run of ``agent``, ordered by agent and run, and one end line.

    The library's own runs, of agents that begin with ``@``, are left out unless named or asked for with
    ``include_reserved``. See ``export_run``.
    """
    async for line in _stream_async(_lines_of_store(agent, include_reserved=include_reserved), store):
        yield line


def export_store_sync(
    store: SyncStore, *, agent: str | None = None, include_reserved: bool = False
) -> Generator[bytes]:
    """``export_store`` without ``await``."""
    return _stream_sync(_lines_of_store(agent, include_reserved=include_reserved), store)


_Lines = Generator[bytes | Steps[Any], Any, None]
"""An export: yields lines, and operations on the store whose results it is sent."""


async def _stream_async(lines: _Lines, store: Store) -> AsyncGenerator[bytes]:
    item = next(lines, None)
    while item is not None:
        if isinstance(item, bytes):
            yield item
            item = next(lines, None)
        else:
            item = _sent(lines, await run_async(item, store))


def _stream_sync(lines: _Lines, store: SyncStore) -> Generator[bytes]:
    item = next(lines, None)
    while item is not None:
        if isinstance(item, bytes):
            yield item
            item = next(lines, None)
        else:
            item = _sent(lines, run_sync(item, store))


def _sent(lines: _Lines, answer: object) -> bytes | Steps[Any] | None:
    try:
        return lines.send(answer)
    except StopIteration:
        return None


def _lines_of_run(digest: LineDigest, agent: str, run: str) -> _Lines:
    page: Snapshot = yield load(agent, run, limit=_PAGE_EVENTS)
    version = page.version
    if not page.log:
        return
    header = f"{FORMAT}/{FORMAT_NUMBER}"
    line = _line({"format": header, "agent": agent, "run": run, "version": version, "meta": page.meta})
    digest.add(line, FORMAT_NUMBER)
    yield line
    seq = page.log[0].seq - 1
    while seq < version:
        if not page.log:
            raise _deleted(agent, run, seq)
        for event in page.log:
            if event.seq != seq + 1:
                raise _deleted(agent, run, seq)
            line = _line(event.to_map())
            digest.add(line, None)
            yield line
            seq = event.seq
            if seq == version:
                return
        page = yield load(agent, run, seq, limit=_PAGE_EVENTS)


def _lines_of_store(agent: str | None, *, include_reserved: bool) -> _Lines:
    runs: list[RunInfo] = yield all_runs(agent, include_reserved=include_reserved)
    yield from _lines(sorted((info.agent, info.run) for info in runs))


def _lines(runs: Iterable[tuple[str, str]]) -> _Lines:
    """The lines of runs, and their end line if there are any."""
    digest = LineDigest()
    for agent, run in runs:
        yield from _lines_of_run(digest, agent, run)
    if digest.has_lines:
        yield digest.end_line()


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
    return await run_async(_import(lines, agent, run, reserved=reserved), store)


def import_jsonl_sync(
    store: SyncStore,
    lines: Iterable[bytes | str],
    *,
    agent: str | None = None,
    run: str | None = None,
    reserved: bool = False,
) -> list[ImportedRun]:
    """``import_jsonl`` without ``await``."""
    return run_sync(_import(lines, agent, run, reserved=reserved), store)


def _import(
    lines: Iterable[bytes | str], agent: str | None, run: str | None, *, reserved: bool
) -> Steps[list[ImportedRun]]:
    reader = _Import(agent, run, reserved=reserved)
    number = 0
    for number, text in enumerate(lines, 1):
        if not line_bytes(text):
            continue
        try:
            yield from reader.add(text, number)
        except (DecodeError, SchemaTooNew, InvalidArgument):
            yield from reader.flush()
            raise
    yield from reader.finish_file(number)
    return reader.results


class _Import:
    """The state of one import: the run being read, and what was done to those before it."""

    def __init__(self, agent: str | None, run: str | None, *, reserved: bool) -> None:
        self.results: list[ImportedRun] = []
        self._agent = agent
        self._run = run
        self._reserved = reserved
        self._current: RunLines | None = None
        self._digest = LineDigest()
        self._sources: dict[tuple[str, str], tuple[str, str]] = {}

    def add(self, text: bytes | str, number: int) -> Steps[None]:
        found = decode_line(text, number)
        if is_end_line(found):
            yield from self.finish(f"the export ends at line {number}")
            self._digest.check_end(found, number)
            return
        if "format" in found and not found.keys() & {"type", "Type"}:
            header = read_header(found, number)
            self._digest.add(text, header.format_number)
            yield from self._begin(header, number)
            return
        self._digest.add(text, None)
        if self._current is None:
            if self._agent is None or self._run is None:
                raise DecodeError(
                    f"line {number} is not the header of a run: events without one need both agent and run given"
                )
            importing = RunImport(self._agent, self._run, reserved=self._reserved)
            self._current = RunLines(importing, source=self._run, version=None, verified=False)
        yield from self._current.add(found, len(text), number)

    def _begin(self, header: Header, number: int) -> Steps[None]:
        yield from self.finish(f"line {number} begins another run")
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
        importing = RunImport(agent, run, meta=header.meta, reserved=self._reserved)
        self._current = RunLines(
            importing,
            source=header.run,
            version=header.version,
            verified=header.format_number > OPEN_FORMAT_NUMBER,  # or else the file is refused at its end
        )

    def flush(self) -> Steps[None]:
        if self._current is not None:
            yield from self._current.flush()

    def finish_file(self, number: int) -> Steps[None]:
        yield from self.finish(f"the file ends after line {number}")
        self._digest.check_finished(number)

    def finish(self, where: str) -> Steps[None]:
        current, self._current = self._current, None
        if current is not None:
            self.results.append((yield from current.finish(where)))


def _line(value: Mapping[str, JsonValue]) -> bytes:
    return encode_json(value) + b"\n"


def _deleted(agent: str, run: str, seq: int) -> RunDeleted:
    return RunDeleted(f"{agent}/{run} was deleted while it was exported, after seq {seq}")
