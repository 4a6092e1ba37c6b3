"""What the tests of memory share: a fixture with stores of every kind, a clock that is set by hand, an extractor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent_memory_log import Event, SyncStore, UserMessage, open_sync_store
from agent_memory_log.memory import Candidate, Evidence, Extraction, Preference, Principal, RunSlice, Source

TOGETHER = Principal("acme", {"user": "42"})
"""Whose memory the programs write that tests run at the same time."""

KINDS = ("memory", "sqlite", "mongo")

OpenStore = Callable[[], SyncStore]
"""Opens a handle on the data of the test; closed after it."""

_numbers = itertools.count()


def somebody(**scopes: str) -> Principal:
    """A principal of a tenant that no other has."""
    return Principal(tenant=f"tenant {next(_numbers)}", scopes=scopes or {"user": "42", "workspace": "ops"})


class SetClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def move(self, **by: float) -> None:
        """Let time pass, as in ``move(days=3)``."""
        self.time += timedelta(**by)


class SaidPreferences:
    """An extractor for tests: ``language=english; tone=dry`` in a user message is two preferences."""

    def __init__(self, name: str = "said") -> None:
        self.name = name
        self.calls: list[RunSlice] = []

    def extract(self, new: RunSlice, /) -> Extraction:
        self.calls.append(new)
        return Extraction(tuple(one for event in new.events for one in self._said(new, event)))

    def _said(self, new: RunSlice, event: Event) -> Sequence[Candidate]:
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
    """The URL of a store without events, of each kind in turn."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'memory.db'}?durability=os"
    found: str = request.getfixturevalue("mongo_uri")
    return found


@pytest.fixture
def open_memory_store(store_url: str) -> Generator[OpenStore]:
    """Opens any number of handles on one store; in memory, all are one."""
    opened: list[SyncStore] = []

    def open_one() -> SyncStore:
        if store_url == "memory:" and opened:
            return opened[0]
        opened.append(open_sync_store(store_url))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()
