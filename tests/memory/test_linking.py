"""Tests linking one or many runs in few appends, and the report's list of runs without events."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory_log import UserMessage, new_event, open_sync_store
from agent_memory_log.errors import InvalidArgument, InvalidEvent
from agent_memory_log.memory import LinkReport, SyncMemoryClient, stream_of
from agent_memory_log.memory.learning import links
from agent_memory_log.memory.records.reports.outcomes import Stats
from tests.memory.stores import OpenStore, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]


def test_the_report_names_runs_without_events(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    existing, deleted, missing = ((f"agent {me.principal.tenant}", name) for name in ("a", "b", "c"))
    for agent, run in (existing, deleted):
        store.append_events(agent, run, new_event(UserMessage("A zebra.")))
    store.delete_run(*deleted)
    assert me.link_run(*missing) == LinkReport((missing,), (missing,))
    report = me.link_runs([existing, deleted, missing, existing])
    assert report == LinkReport((existing, deleted), (deleted, missing))
    assert me.link_runs([existing]) == LinkReport()
    assert [hit.text for hit in me.search("zebra")] == ["A zebra."]


def test_many_runs_are_linked_in_few_appends(open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_AT_ONCE", 100)
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    raw: Any = store.append_events
    appended: list[int] = []

    def append_events(agent: str, run: str, *events: Any, **options: Any) -> Any:
        appended.append(len(events))
        return raw(agent, run, *events, **options)

    monkeypatch.setattr(store, "append_events", append_events)
    runs = [("agent", f"run {number}") for number in range(250)]
    assert me.link_runs(iter(runs)).linked == tuple(runs)
    assert appended == [100, 100, 50]
    assert isinstance(me.stats(), Stats)
    assert me.stats().runs == 250
    assert me.link_runs(runs).linked == ()
    assert appended == [100, 100, 50]
    assert me.rebuild().equal


@pytest.mark.parametrize(
    ("runs", "error"),
    [
        ([("agent", "run"), ("", "run")], InvalidEvent),
        ([("agent", "run"), ("@memory/t/user/1", "records")], InvalidArgument),
        ([("agent", "run"), "run"], InvalidArgument),
        ("run", InvalidArgument),
    ],
)
def test_no_run_is_linked_if_one_of_them_is_invalid(runs: Any, error: type[Exception]) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody())
        with pytest.raises(error):
            me.link_runs(runs)
        assert store.load_run(stream_of(me.principal.subject("user")), "records").version == 0
