"""The base of the broken stores: an in-memory store with a hook around each operation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from agent_memory_log import AppendResult, Event, JsonValue, Snapshot
from agent_memory_log.conformance import OpenHandle
from agent_memory_log.store import RunPage
from agent_memory_log_inmem import MemoryStore, SyncMemoryStore
from agent_memory_log_inmem.data import MemoryData


class Defect(msgspec.Struct, frozen=True):
    """A broken store, and the names of the tests that must fail with it."""

    store: type[MemoryStore | SyncMemoryStore]
    caught_by: tuple[str, ...]

    def open_handle(self) -> OpenHandle:
        """Return a function that opens handles on new, empty data. The suite's tests receive it as ``open_handle``."""
        data = SharedData()
        return lambda: self.store(data)


DEFECTS: list[Defect] = []

_Store = TypeVar("_Store", bound=type[MemoryStore | SyncMemoryStore])


def caught_by(*tests: str) -> Callable[[_Store], _Store]:
    """Register a broken store and the names of the tests that must fail with it."""

    def register(store: _Store) -> _Store:
        DEFECTS.append(Defect(store, tests))
        return store

    return register


class SharedData(MemoryData):
    """The data of a store, with notes for defects that affect several handles."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: dict[object, Any] = {}


class Append(msgspec.Struct):
    """The arguments of ``append_events``."""

    agent: str
    run: str
    events: tuple[Event, ...]
    expected_version: int | None = None
    meta: Mapping[str, JsonValue] | None = None
    first_seq: int | None = None
    reserved: bool = False


class Load(msgspec.Struct):
    """The arguments of ``load_run``."""

    agent: str
    run: str
    after: int = 0
    types: Iterable[str] | None = None
    limit: int | None = None
    last: int | None = None


class Listing(msgspec.Struct):
    """The arguments of ``list_runs``."""

    agent: str | None
    limit: int = 50
    cursor: str | None = None
    include_reserved: bool = False


class BrokenStore(MemoryStore):
    """A store without defects. A subclass overrides ``appending``, ``loading``, ``listing`` or another method."""

    async def append_events(
        self,
        agent: str,
        run: str,
        *events: Event,
        expected_version: int | None = None,
        meta: Mapping[str, JsonValue] | None = None,
        first_seq: int | None = None,
        reserved: bool = False,
    ) -> AppendResult:
        return await self.appending(Append(agent, run, events, expected_version, meta, first_seq, reserved))

    async def appending(self, append: Append) -> AppendResult:
        return await MemoryStore.append_events(
            self,
            append.agent,
            append.run,
            *append.events,
            expected_version=append.expected_version,
            meta=append.meta,
            first_seq=append.first_seq,
            reserved=append.reserved,
        )

    async def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> Snapshot:
        return await self.loading(Load(agent, run, after, types, limit, last))

    async def loading(self, load: Load) -> Snapshot:
        return await MemoryStore.load_run(
            self, load.agent, load.run, after=load.after, types=load.types, limit=load.limit, last=load.last
        )

    async def list_runs(
        self,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        include_reserved: bool = False,
    ) -> RunPage:
        return await self.listing(Listing(agent, limit, cursor, include_reserved))

    async def listing(self, listing: Listing) -> RunPage:
        return await MemoryStore.list_runs(
            self,
            listing.agent,
            limit=listing.limit,
            cursor=listing.cursor,
            include_reserved=listing.include_reserved,
        )

    @property
    def notes(self) -> dict[object, Any]:
        """The notes that all handles on the data share."""
        assert isinstance(self._data, SharedData)
        return self._data.notes

    async def read(self, agent: str, run: str) -> Snapshot:
        """Load the run without the defect."""
        return await MemoryStore.load_run(self, agent, run)

    def follow_correctly(self, agent: str, run: str, after: int = 0) -> AsyncGenerator[Event]:
        """Follow the run without the defect."""
        return MemoryStore.follow(self, agent, run, after=after)


def changed_copy(
    snapshot: Snapshot, log: Iterable[Event] | None = None, *, kind: type[Snapshot] = Snapshot, **changes: Any
) -> Snapshot:
    """Return a copy of a snapshot with another log or other fields."""
    fields: dict[str, Any] = {
        name: getattr(snapshot, name)
        for name in ("version", "last_seq", "meta", "after", "types", "first_seq", "redactions")
    }
    events = snapshot.log if log is None else log
    return kind(snapshot.agent, snapshot.run, list(events), **{**fields, **changes})


def with_data(event: Event, change: Callable[[Any], Any]) -> Event:
    """Return a copy of an event after applying ``change`` to each value in its data, from the inside out."""
    event_map = event.to_map()
    return Event.from_map({**event_map, "data": _changed(event_map["data"], change)})


def _changed(value: JsonValue, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return change({key: _changed(inner, change) for key, inner in value.items()})
    if isinstance(value, list):
        return change([_changed(inner, change) for inner in value])
    return change(value)
