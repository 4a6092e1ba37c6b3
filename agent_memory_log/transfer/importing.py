"""Shared code of importers and copies: reads lines, derives event ids, and appends events in batches."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Mapping, Sequence
from typing import Protocol, cast

import msgspec

from agent_memory_log.errors import (
    AgentMemoryLogError,
    DecodeError,
    EventConflict,
    EventTooLarge,
    InvalidEvent,
    SchemaTooNew,
    StoreClosed,
    StoreCorrupt,
    StoreUnavailable,
    VersionConflict,
)
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, decode_json, encode_json
from agent_memory_log.events.payloads import Redacted
from agent_memory_log.steps import Steps, append, load, run_async
from agent_memory_log.store import AppendResult, Store

BATCH_EVENTS = 500
"""The largest number of events in one append of an importer."""

BATCH_BYTES = 4 * 1024 * 1024
"""The approximate number of bytes of encoded events in one append of an importer."""

_ATTEMPTS = 5
"""The number of attempts to append to a run that another writer creates at the same time."""


def derived_event_id(kind: str, source: str, *position: int) -> str:
    """Return an id of 32 hex digits for an event without an id. It depends on the event's position, not its content.

    ``kind`` names the importer that counts ``position``, so that two importers never derive the same id.
    """
    text = "\n".join((kind, *map(str, position), source))  # source is last, because it may contain newlines
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def line_bytes(text: bytes | str) -> bytes:
    """Return a line as UTF-8, without surrounding white space and without a byte order mark."""
    line = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return line.strip().removeprefix(codecs.BOM_UTF8)


def decode_line(text: bytes | str, number: int) -> dict[str, JsonValue]:
    """Decode the JSON object on line ``number`` of a file. Raises ``DecodeError`` that names the line."""
    value = decode_document(text, f"line {number}")
    if not isinstance(value, dict):
        raise DecodeError(f"line {number} must be a JSON object, got {describe(value)}")
    return cast("dict[str, JsonValue]", value)


def decode_document(text: bytes | str, path: str) -> object:
    """Decode the JSON value of a file or a line. A byte order mark of UTF-8 is ignored.

    Raises a ``DecodeError`` that begins with ``path``.
    """
    line = line_bytes(text)
    try:
        return decode_json(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in line[:4]:
            raise DecodeError(f"{path} is UTF-16 or UTF-32, but must be UTF-8: convert the file") from error
        raise DecodeError(f"{path} is not JSON: {error}") from error


class ImportedRun(msgspec.Struct, frozen=True):
    """The result of importing one run.

    Attributes:
        agent: The id of the agent.
        run: The id of the run.
        version: The run's version after the import.
        read: How many events were read.
        inserted: How many of these events were new and are stored now.
        verified: Whether an end line confirms the lines of the run.
        problem: Why the rest of the run was not imported, or ``""``.
    """

    agent: str
    run: str
    version: int
    read: int
    inserted: int
    verified: bool = False
    problem: str = ""


class SourceRun(Protocol):
    """A run in the store of another tool, as the source of an import."""

    @property
    def agent(self) -> str:
        """The id of the agent."""
        ...

    @property
    def run(self) -> str:
        """The id of the run."""
        ...

    def meta(self) -> dict[str, JsonValue]:
        """Return the meta for the new run. Raises ``DecodeError``."""
        ...

    def events(self) -> Iterator[Event]:
        """Yield the events in append order, with their seqs and with ids that are the same in every import.

        Raises ``DecodeError`` at the first event that cannot be read.
        """
        ...


class _Item(msgspec.Struct, frozen=True):
    event: Event
    path: str


class RunImport:
    """The import of events into one run, in their order.

    Call ``add`` for each event. Run the steps of ``flush`` whenever ``full`` is true, and at the end.

    If the store refuses an event, the error names the event's ``path``, such as ``line 7``. All events before it are
    stored, and no event after it is stored. No event is stored twice, so a repeated import continues an interrupted
    one.
    """

    def __init__(
        self,
        agent: str,
        run: str,
        *,
        meta: Mapping[str, JsonValue] | None = None,
        exact: bool = False,
        reserved: bool = False,
    ) -> None:
        """Prepare an import into ``run`` of ``agent``.

        Args:
            agent: The id of the agent.
            run: The id of the run.
            meta: The meta of the run, if this import creates the run.
            exact: Whether every event must keep its seq. If the next seq of the run is not the seq of the next event,
                ``flush`` raises ``VersionConflict``.
            reserved: As for ``append_events``.
        """
        self.agent = agent
        self.run = run
        self.version = 0
        self.inserted = 0
        self.refused: Event | None = None
        self._meta = meta
        self._exact = exact
        self._reserved = reserved
        self._pending: list[_Item] = []
        self._bytes = 0
        self._begun = False

    def add(self, event: Event, *, size: int, path: str) -> None:
        """Add an event of about ``size`` bytes. It keeps its ``seq``, if it has one and the run holds no events."""
        self._pending.append(_Item(event, path))
        self._bytes += size

    @property
    def full(self) -> bool:
        """Return whether the added events make a full batch."""
        return len(self._pending) >= BATCH_EVENTS or self._bytes >= BATCH_BYTES

    def flush(self) -> Steps[list[Event]]:
        """Append the events added since the last flush. Return the stored events in the same order.

        Raises the errors of ``append_events``. The message begins with the event's path.
        """
        pending, self._pending, self._bytes = self._pending, [], 0
        return (yield from self._append(pending)) if pending else []

    def _append(self, items: Sequence[_Item]) -> Steps[list[Event]]:
        try:
            result = yield from self._append_once([item.event for item in items])
        except EventConflict as error:
            item = next(item for item in items if item.event.event_id == error.event_id)
            self.refused = item.event
            redacted = " (the event is redacted in the source)" if isinstance(item.event.data, Redacted) else ""
            raise EventConflict(f"{item.path}: {error}{redacted}", event_id=error.event_id, seq=error.seq) from error
        except (InvalidEvent, EventTooLarge) as error:
            if len(items) == 1:
                self.refused = items[0].event
                raise _with_path(error, items[0].path) from error
            # The store refused the batch because of one event or its total size. Smaller halves find the event or fit.
            half = len(items) // 2
            return (yield from self._append(items[:half])) + (yield from self._append(items[half:]))
        self.version = result.version
        self.inserted += result.inserted
        return list(result.events)

    def _append_once(self, events: Sequence[Event]) -> Steps[AppendResult]:
        for attempt in range(_ATTEMPTS):
            first_seq = None if self._begun else (yield from self._seq_to_keep(events[0].seq))
            expected = events[0].seq - 1 if self._exact and first_seq is None else None
            try:
                result = yield from append(
                    self.agent,
                    self.run,
                    events,
                    expected_version=expected,
                    meta=self._meta,
                    first_seq=first_seq,
                    reserved=self._reserved,
                )
            except VersionConflict:
                if first_seq is None or attempt == _ATTEMPTS - 1:
                    raise
                continue  # another writer created the run after it was loaded
            self._begun = True
            return result
        raise AssertionError("the last attempt returns or raises")

    def _seq_to_keep(self, seq: int) -> Steps[int | None]:
        if not seq:
            return None
        snapshot = yield from load(self.agent, self.run, limit=1)
        return None if snapshot.log or seq <= snapshot.version else seq


def _with_path(error: InvalidEvent | EventTooLarge, path: str) -> InvalidEvent | EventTooLarge:
    if isinstance(error, InvalidEvent):
        return InvalidEvent(f"{path}: {error}", field=error.field)
    return EventTooLarge(f"{path}: {error}", size=error.size, limit=error.limit)


def is_about_one_run(error: AgentMemoryLogError) -> bool:
    """Return whether the error concerns only one run, so that other runs may still be copied or imported."""
    if isinstance(error, StoreCorrupt):
        return True
    return not isinstance(error, (StoreClosed, SchemaTooNew, StoreUnavailable))


async def import_runs(
    store: Store, sources: AsyncIterable[SourceRun], *, reserved: bool = False
) -> AsyncGenerator[ImportedRun]:
    """Append the events of each source to the run with the same agent id and run id.

    If the run holds no events, the events keep their seqs. Otherwise, new events are appended after its last event. A
    repeated import stores no event twice. An event that cannot be read or stored is described in the result's
    ``problem``. The events before it are stored, and the import continues with the next run.

    Args:
        store: The store to append to.
        sources: The runs to import.
        reserved: As for ``append_events``.

    Yields:
        The result of each run, as soon as its import ends.

    Raises:
        StoreUnavailable: The whole store failed.
        StoreClosed: The handle was closed.
        SchemaTooNew: A newer release wrote the store.
        Exception: The errors that ``sources`` raises.
    """
    async for source in sources:
        yield await run_async(_import_run(source, reserved=reserved), store)


def _import_run(source: SourceRun, *, reserved: bool) -> Steps[ImportedRun]:
    try:
        meta = source.meta()
    except DecodeError as error:
        return ImportedRun(source.agent, source.run, 0, 0, 0, problem=str(error))
    importing = RunImport(source.agent, source.run, meta=meta, reserved=reserved)
    read, problem = 0, ""
    try:
        try:
            for event in source.events():
                importing.add(event, size=len(encode_json(event.to_map())), path=f"event {event.seq}")
                read += 1
                if importing.full:
                    yield from importing.flush()
        finally:
            yield from importing.flush()
    except AgentMemoryLogError as error:
        if not is_about_one_run(error):
            raise
        problem = str(error)
    return ImportedRun(source.agent, source.run, importing.version, read, importing.inserted, problem=problem)
