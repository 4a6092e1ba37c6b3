"""Tests of memory snapshots: a new client reads few events, each part fits the backend, and results stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import Snapshot, SyncStore, new_event, open_sync_store
from agent_memory_log.memory import SyncMemory, SyncMemoryClient, stream_of
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.stream import snapshots
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.payloads import MemorySnapshot
from agent_memory_log.memory.stream.subjects import folded
from agent_memory_log.steps import run_sync
from tests.memory.stores import OpenStore, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]


@pytest.fixture(autouse=True)
def frequent_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "EVENTS_BETWEEN", 20)


def _stream(store: SyncStore, me: SyncMemory) -> Snapshot:
    return store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN)


def _parts(stream: Snapshot) -> list[MemorySnapshot]:
    return [event.data for event in stream.log if isinstance(event.data, MemorySnapshot)]


def _new_client_equals_fold(store: SyncStore, me: SyncMemory) -> bool:
    """Return whether a new client, which starts from a snapshot, has the same state as a fold of the whole stream."""
    fresh = SyncMemoryClient(store).of(me.principal)
    assert isinstance(fresh._context, Context)
    subject = fresh._context.subject("user")
    run_sync(subject.refresh(), store)
    return subject.ask(lambda state: state.to_bytes()) == folded(_stream(store, me)).to_bytes()


def test_new_client_reads_only_one_snapshot_and_the_events_after_it(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "PART_BYTES", 400)
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    for number in range(130):
        me.remember(key=f"k{number % 7}", value=f"v{number}")
    stream = _stream(store, me)
    parts = _parts(stream)
    assert len(parts) > 1
    assert {(part.at, part.parts) for part in parts} == {(parts[0].at, len(parts))}
    assert sum(event.type == "redacted" for event in stream.log) > len(parts)
    loaded: list[int] = []
    load_from_store: Any = store.load_run

    def load_run(agent: str, run: str, **options: Any) -> Any:
        snapshot = load_from_store(agent, run, **options)
        loaded.append(len(snapshot.log))
        return snapshot

    monkeypatch.setattr(store, "load_run", load_run)
    records = SyncMemoryClient(store).of(me.principal).list(scopes=["user"])
    assert sum(loaded) < 40 + len(parts)
    assert records == me.list(scopes=["user"])
    assert _new_client_equals_fold(store, me)


def test_snapshot_parts_fit_the_size_limit_of_the_backend(tmp_path: Path) -> None:
    with open_sync_store(f"sqlite:///{tmp_path / 'memory.db'}?max_event_bytes=3000") as store:
        me = SyncMemoryClient(store).of(somebody())
        for number in range(60):
            me.remember(key=f"k{number}", value="x" * 300)
        parts = _parts(_stream(store, me))
        assert len(parts) > 5
        assert all(len(part.state_json) < 3000 for part in parts)
        assert _new_client_equals_fold(store, me)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '[[],[1,"x"]]', '[[["r",1]],null]'])
def test_unreadable_snapshot_is_ignored(open_memory_store: OpenStore, text: str) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    me.remember(key="k", value="v")
    agent = stream_of(me.principal.subject("user"))
    store.append_events(agent, STREAM_RUN, new_event(MemorySnapshot(at=1, parts=1, state_json=text)), reserved=True)
    assert [record.value for record in SyncMemoryClient(store).of(me.principal).list()] == ["v"]
    assert _new_client_equals_fold(store, me)


@pytest.mark.parametrize(
    ("at", "parts", "part"), [(1, 2, 0), (1, 2, 1), (0, 1, 0), (2, 1, 0), (1, 0, 0), (1, -1, 0), (1, 10**6, 0)]
)
def test_incomplete_snapshot_is_ignored(open_memory_store: OpenStore, at: int, parts: int, part: int) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    me.remember(key="k", value="v")
    agent = stream_of(me.principal.subject("user"))
    false_state = "[[],[1,1,[],[],[],[],[],[],[],[]]]"
    part_event = new_event(MemorySnapshot(at=at, parts=parts, part=part, state_json=false_state))
    store.append_events(agent, STREAM_RUN, part_event, reserved=True)
    assert [record.value for record in SyncMemoryClient(store).of(me.principal).list()] == ["v"]
    store.append_events(
        agent, STREAM_RUN, new_event(MemorySnapshot(at=2, parts=1, state_json=false_state)), reserved=True
    )
    assert SyncMemoryClient(store).of(me.principal).list() == (), (
        "a complete snapshot with this false state must be accepted"
    )


def test_subject_starts_empty_after_its_stream_was_deleted(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    for number in range(30):
        me.remember(key=f"k{number}", value="v")
    other = SyncMemoryClient(store).of(me.principal)
    assert len(other.list()) == 30
    store.delete_run(stream_of(me.principal.subject("user")), STREAM_RUN)
    me.remember(key="new", value="v")
    assert [record.key for record in other.list()] == [record.key for record in me.list()] == ["new"]
    assert _new_client_equals_fold(store, me)


def test_snapshot_does_not_restore_a_redacted_record(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    for number in range(30):
        me.remember(key=f"k{number}", value="v")
    stream = _stream(store, me)
    assert _parts(stream)
    first = stream.log[0]
    store.redact_events(stream.agent, STREAM_RUN, [first.seq], reason="operator")
    assert "k0" not in [record.key for record in SyncMemoryClient(store).of(me.principal).list()]
    assert _new_client_equals_fold(store, me)
