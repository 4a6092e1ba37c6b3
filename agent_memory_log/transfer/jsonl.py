"""Exports and imports whole runs in the library's JSONL format, which is lossless, streamed and byte-stable.

A run begins with a header line, ``{"format":"agent-memory-log/2","agent":…,"run":…,"version":…,"meta":{…}}``. Its
events follow in append order. Each line holds one ``Event.to_map`` as JSON. An export of one or more runs ends with an
end line (see ``endline.py``). Another export may follow. If an export is imported into an empty store and exported
again, the bytes are the same.
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
from agent_memory_log.transfer.importing import ImportedRun, RunImport, decode_line, line_bytes
from agent_memory_log.transfer.run_lines import Header, RunLines, read_header

_PAGE_EVENTS = 500


async def export_run(store: Store, agent: str, run: str) -> AsyncGenerator[bytes]:
    """Export a run as lines of JSONL with an end line. A run without events yields no lines.

    Events are read in pages, up to the run's version at the start. An event that is redacted during the export may be
    exported with or without its content.

        async for line in export_run(store, "support-agent", "run-42"):
            file.write(line)

    Args:
        store: The store to read from.
        agent: The id of the agent.
        run: The id of the run.

    Yields:
        One line with its newline.

    Raises:
        RunDeleted: The run was deleted during the export. The lines so far are incomplete.
        AgentMemoryLogError: The errors of ``load_run``.
    """
    async for line in _stream_async(_lines([(agent, run)]), store):
        yield line


def export_run_sync(store: SyncStore, agent: str, run: str) -> Generator[bytes]:
    """``export_run`` without ``await``."""
    return _stream_sync(_lines([(agent, run)]), store)


async def export_store(
    store: Store, *, agent: str | None = None, include_reserved: bool = False
) -> AsyncGenerator[bytes]:
    """Export every run, or every run of ``agent``, as lines of JSONL with one end line. See ``export_run``.

    Args:
        store: The store to read from.
        agent: The id of the agent whose runs are exported. By default, the runs of all agents are exported.
        include_reserved: Whether to export the library's own runs too. The ids of their agents begin with ``@``. If
            ``agent`` is such an id, its runs are exported in any case.

    Yields:
        One line with its newline, in the order of agent and run.

    Raises:
        RunDeleted: A run was deleted during the export.
        AgentMemoryLogError: The errors of ``list_runs`` and ``load_run``.
    """
    async for line in _stream_async(_lines_of_store(agent, include_reserved=include_reserved), store):
        yield line


def export_store_sync(
    store: SyncStore, *, agent: str | None = None, include_reserved: bool = False
) -> Generator[bytes]:
    """``export_store`` without ``await``."""
    return _stream_sync(_lines_of_store(agent, include_reserved=include_reserved), store)


_Lines = Generator[bytes | Steps[Any], Any, None]
"""The generator of an export. It yields lines, and store operations whose results are sent back to it."""


async def _stream_async(lines: _Lines, store: Store) -> AsyncGenerator[bytes]:
    item = next(lines, None)
    while item is not None:
        if isinstance(item, bytes):
            yield item
            item = next(lines, None)
        else:
            item = _send(lines, await run_async(item, store))


def _stream_sync(lines: _Lines, store: SyncStore) -> Generator[bytes]:
    item = next(lines, None)
    while item is not None:
        if isinstance(item, bytes):
            yield item
            item = next(lines, None)
        else:
            item = _send(lines, run_sync(item, store))


def _send(lines: _Lines, result: object) -> bytes | Steps[Any] | None:
    """Send the result of an operation. Return the next item, or None at the end."""
    try:
        return lines.send(result)
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
    """Yield the lines of the runs, and an end line if there are any lines."""
    digest = LineDigest()
    for agent, run in runs:
        yield from _lines_of_run(digest, agent, run)
    if digest.has_lines:
        yield digest.end_line()


def check_jsonl(lines: Iterable[bytes | str]) -> None:
    """Check the end lines of an export. The events are not decoded.

    Call it before ``import_jsonl`` if the lines can be read twice. ``import_jsonl`` stores the events before it reaches
    a damaged end line. Lines of format 1, which has no end lines, always pass.

        with open("runs.jsonl", "rb") as file:
            check_jsonl(file)
            file.seek(0)
            results = await import_jsonl(store, file)

    Raises:
        DecodeError: A line is missing or was changed. The message names the end line.
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
            return  # the import raises SchemaTooNew
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
    """Append the events of ``lines`` to their runs, in batches while the lines are read.

    If the run holds no events and its version is below the first seq in the file, the events keep their seqs.
    Otherwise, they are appended after the run's last event, and redaction markers name the new seqs. A repeated import
    stores no event twice and continues an interrupted one. An event without an id gets an id that depends on its
    run and position. Empty lines are ignored.

    If an error is raised, all events before the line in the message are stored. Only a batch with an ``EventConflict``
    is refused as a whole.

        with open("runs.jsonl", "rb") as file:
            results = await import_jsonl(store, file)

    Args:
        store: The store to append to.
        lines: The lines of one or more exports.
        agent: Replaces the agent of every header.
        run: Replaces the run of the header. If ``agent`` is given too, the header may be missing. The lines may then
            also be events of the original Go package, with ``Type``, ``Timestamp`` and ``Data``.
        reserved: Whether to import agents that begin with ``@`` and event types that begin with ``memory_``. These are
            the library's own events, and they decide which memories exist. Set this only if an operator asked for it.

    Returns:
        One result for each header.

    Raises:
        DecodeError: A line is invalid, a run has fewer events than its header's version, or an end line is missing or
            wrong. ``check_jsonl`` finds wrong and missing end lines before any event is stored.
        SchemaTooNew: A newer release wrote the file.
        InvalidArgument: ``run`` is given for a file of several runs, or ``agent`` would merge two runs.
        AgentMemoryLogError: The errors of ``append_events``. The message names the line.
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
    """The state of one import: the current run and the results of the runs before it."""

    def __init__(self, agent: str | None, run: str | None, *, reserved: bool) -> None:
        self.results: list[ImportedRun] = []
        self._agent = agent
        self._run = run
        self._reserved = reserved
        self._current: RunLines | None = None
        self._digest = LineDigest()
        self._sources: dict[tuple[str, str], tuple[str, str]] = {}

    def add(self, text: bytes | str, number: int) -> Steps[None]:
        line = decode_line(text, number)
        if is_end_line(line):
            yield from self.finish(f"the export ends at line {number}")
            self._digest.check_end(line, number)
            return
        if "format" in line and not line.keys() & {"type", "Type"}:
            header = read_header(line, number)
            self._digest.add(text, header.format_number)
            yield from self._begin(header, number)
            return
        self._digest.add(text, None)
        if self._current is None:
            if self._agent is None or self._run is None:
                raise DecodeError(
                    f"line {number} is not the header of a run, with which an export begins; in Python, import_jsonl "
                    "takes events without a header if it gets agent and run"
                )
            importing = RunImport(self._agent, self._run, reserved=self._reserved)
            self._current = RunLines(importing, source=self._run, version=None, verified=False)
        yield from self._current.add(line, len(text), number)

    def _begin(self, header: Header, number: int) -> Steps[None]:
        yield from self.finish(f"line {number} begins another run")
        if self._run is not None and self.results:
            raise InvalidArgument(
                f"line {number} begins another run, but run is {self._run!r}: leave run out to import several runs"
            )
        agent, run = self._agent or header.agent, self._run or header.run
        try:
            check_not_reserved(agent, (), reserved=self._reserved)
        except InvalidEvent as error:
            raise InvalidEvent(f"line {number}: {error}", field=error.field) from error
        source = self._sources.setdefault((agent, run), (header.agent, header.run))
        if source != (header.agent, header.run):
            raise InvalidArgument(
                f"line {number} begins {header.agent}/{header.run}, but {'/'.join(source)} was already imported as "
                f"{agent}/{run}: import the runs of each agent separately"
            )
        importing = RunImport(agent, run, meta=header.meta, reserved=self._reserved)
        self._current = RunLines(
            importing,
            source=header.run,
            version=header.version,
            verified=header.format_number > OPEN_FORMAT_NUMBER,  # a wrong or missing end line raises later
        )

    def flush(self) -> Steps[None]:
        if self._current is not None:
            yield from self._current.flush()

    def finish_file(self, number: int) -> Steps[None]:
        yield from self.finish(f"the file ends after line {number}")
        self._digest.check_finished(number)

    def finish(self, ending: str) -> Steps[None]:
        current, self._current = self._current, None
        if current is not None:
            self.results.append((yield from current.finish(ending)))


def _line(value: Mapping[str, JsonValue]) -> bytes:
    return encode_json(value) + b"\n"


def _deleted(agent: str, run: str, seq: int) -> RunDeleted:
    return RunDeleted(f"{agent}/{run} was deleted during the export, after seq {seq}")
