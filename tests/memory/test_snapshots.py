"""Snapshots: opening costs what is remembered, whatever the backend's limits, and nothing depends on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import Snapshot, SyncStore, new_event, open_sync_store
from agent_memory_log.memory import SyncMemory, SyncMemoryClient, stream_of
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.stream import snapshots
from agent_memory_log.memory.stream.payloads import MemorySnapshot
from agent_memory_log.memory.stream.subjects import folded
from agent_memory_log.steps import run_sync
from tests.memory.stores import OpenStore, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "EVENTS_BETWEEN", 20)


def _stream(store: SyncStore, me: SyncMemory) -> Snapshot:
    return store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN)


def _parts(stream: Snapshot) -> list[MemorySnapshot]:
    return [event.data for event in stream.log if isinstance(event.data, MemorySnapshot)]


def _same_as_folded(store: SyncStore, me: SyncMemory) -> bool:
    fresh = SyncMemoryClient(store).of(me.principal)
    subject = fresh._context.subject("user")
    run_sync(subject.refresh(), store)
    return subject.ask(lambda state: state.to_bytes()) == folded(_stream(store, me)).to_bytes()


def test_one_is_live_at_a_time_and_opening_reads_no_more_than_it_must(
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
    raw: Any = store.load_run

    def load_run(agent: str, run: str, **options: Any) -> Any:
        found = raw(agent, run, **options)
        loaded.append(len(found.log))
        return found

    monkeypatch.setattr(store, "load_run", load_run)
    records = SyncMemoryClient(store).of(me.principal).list(scopes=["user"])
    assert sum(loaded) < 40 + len(parts)
    assert records == me.list(scopes=["user"])
    assert _same_as_folded(store, me)


def test_parts_fit_the_limit_of_the_backend(tmp_path: Path) -> None:
    with open_sync_store(f"sqlite:///{tmp_path / 'memory.db'}?max_event_bytes=3000") as store:
        me = SyncMemoryClient(store).of(somebody())
        for number in range(60):
            me.remember(key=f"k{number}", value="x" * 300)
        parts = _parts(_stream(store, me))
        assert len(parts) > 5
        assert all(len(part.state_json) < 3000 for part in parts)
        assert _same_as_folded(store, me)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '[[],[1,"x"]]', '[[["r",1]],null]'])
def test_a_snapshot_that_cannot_be_read_costs_nothing_but_time(open_memory_store: OpenStore, text: str) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    me.remember(key="k", value="v")
    agent = stream_of(me.principal.subject("user"))
    store.append_events(agent, STREAM_RUN, new_event(MemorySnapshot(at=1, parts=1, state_json=text)), reserved=True)
    assert [one.value for one in SyncMemoryClient(store).of(me.principal).list()] == ["v"]
    assert _same_as_folded(store, me)


@pytest.mark.parametrize(
    ("at", "parts", "part"), [(1, 2, 0), (1, 2, 1), (0, 1, 0), (2, 1, 0), (1, 0, 0), (1, -1, 0), (1, 10**6, 0)]
)
def test_a_snapshot_that_is_not_whole_is_none(open_memory_store: OpenStore, at: int, parts: int, part: int) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    me.remember(key="k", value="v")
    agent = stream_of(me.principal.subject("user"))
    lie = "[[],[1,1,[],[],[],[],[]]]"
    part_of_it = new_event(MemorySnapshot(at=at, parts=parts, part=part, state_json=lie))
    store.append_events(agent, STREAM_RUN, part_of_it, reserved=True)
    assert [one.value for one in SyncMemoryClient(store).of(me.principal).list()] == ["v"]
    store.append_events(agent, STREAM_RUN, new_event(MemorySnapshot(at=2, parts=1, state_json=lie)), reserved=True)
    assert SyncMemoryClient(store).of(me.principal).list() == (), "the lie must be one that is believed when whole"


def test_a_subject_whose_stream_was_deleted_begins_anew(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    for number in range(30):
        me.remember(key=f"k{number}", value="v")
    other = SyncMemoryClient(store).of(me.principal)
    assert len(other.list()) == 30
    store.delete_run(stream_of(me.principal.subject("user")), STREAM_RUN)
    me.remember(key="new", value="v")
    assert [one.key for one in other.list()] == [one.key for one in me.list()] == ["new"]
    assert _same_as_folded(store, me)


def test_what_an_operator_redacted_is_not_read_out_of_a_snapshot(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    for number in range(30):
        me.remember(key=f"k{number}", value="v")
    stream = _stream(store, me)
    assert _parts(stream)
    first = stream.log[0]
    store.redact_events(stream.agent, STREAM_RUN, [first.seq], reason="operator")
    assert "k0" not in [one.key for one in SyncMemoryClient(store).of(me.principal).list()]
    assert _same_as_folded(store, me)
