"""Shared helpers of the memory tests: a fixture with stores of every kind, a manual clock and an extractor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent_memory_log import Event, SyncStore, UserMessage, open_sync_store
from agent_memory_log.memory import Candidate, Evidence, Extraction, Preference, Principal, RunSlice, Source

TOGETHER = Principal("acme", {"user": "42"})
"""The principal whose memory several test programs write at the same time."""

KINDS = ("memory", "sqlite", "mongo")

OpenStore = Callable[[], SyncStore]
"""Opens a handle on the test's store. The fixture closes the handle after the test."""

_numbers = itertools.count()


def somebody(**scopes: str) -> Principal:
    """Return a principal with a tenant of its own."""
    return Principal(tenant=f"tenant {next(_numbers)}", scopes=scopes or {"user": "42", "workspace": "ops"})


class SetClock:
    """A clock that shows the same time until a test moves it."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def move(self, **by: float) -> None:
        """Move the clock forward, as in ``move(days=3)``."""
        self.time += timedelta(**by)


class SaidPreferences:
    """A test extractor. It reads two preferences from the user message ``language=english; tone=dry``."""

    def __init__(self, name: str = "said") -> None:
        self.name = name
        self.calls: list[RunSlice] = []

    def extract(self, new: RunSlice, /) -> Extraction:
        self.calls.append(new)
        return Extraction(tuple(candidate for event in new.events for candidate in self._candidates(new, event)))

    def _candidates(self, new: RunSlice, event: Event) -> Sequence[Candidate]:
        if not isinstance(event.data, UserMessage):
            return ()
        pairs = [part.partition("=") for part in event.data.message.split(";") if "=" in part]
        return [
            Candidate(
                Preference(key.strip().rpartition("@")[2], value.strip()),
                scope=key.strip().rpartition("@")[0],
                valid_from=event.timestamp,
                source=Source("run", f"{new.agent}/{new.run}"),
                evidence=(Evidence(new.agent, new.run, event.seq, f"{self.name}/{number}"),),
            )
            for number, (key, _, value) in enumerate(pairs, 1)
        ]


@pytest.fixture(params=KINDS)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store, once for each kind of store."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'memory.db'}?durability=os"
    uri: str = request.getfixturevalue("mongo_uri")
    return uri


@pytest.fixture
def open_memory_store(store_url: str) -> Generator[OpenStore]:
    """Yield a function that opens handles on one store. An in-memory store has only one handle."""
    opened: list[SyncStore] = []

    def open_handle() -> SyncStore:
        if store_url == "memory:" and opened:
            return opened[0]
        opened.append(open_sync_store(store_url))
        return opened[-1]

    yield open_handle
    for store in opened:
        store.close()
