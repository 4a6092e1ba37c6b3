"""Tests of erasure: a forgotten value is absent from the stores, from other clients and after later writes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import (
    AssistantMessage,
    Event,
    JsonValue,
    SyncStore,
    UserMessage,
    new_event,
    open_sync_store,
)
from agent_memory_log.capabilities import Compacts
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.events.registry import payload_from_map
from agent_memory_log.memory import Principal, SyncMemory, SyncMemoryClient, stream_of
from agent_memory_log.memory.stream import snapshots
from agent_memory_log.memory.stream.payloads import MemoryTombstone
from tests.memory.stores import OpenStore, SaidPreferences, SetClock, open_memory_store, somebody, store_url
from tests.mongo.server import GivenServer, MongoServer

__all__ = ["open_memory_store", "store_url"]

SECRET = "wolfram-4711-secret"
ME = Principal("acme", {"user": "42", "workspace": "ops"})


def _found_in_files(folder: Path) -> bool:
    searched = subprocess.run(["grep", "-rqai", SECRET, str(folder)], check=False)
    assert searched.returncode in {0, 1}
    return searched.returncode == 0


def _compact(store: SyncStore) -> None:
    assert isinstance(store, Compacts)
    store.compact()


@pytest.mark.parametrize("method", ["key", "id", "all"])
def test_forgotten_value_is_absent_from_the_sqlite_file(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "EVENTS_BETWEEN", 7)
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with open_sync_store(url) as store, open_sync_store(url) as second_store:
        me = SyncMemoryClient(store).of(ME)
        second = SyncMemoryClient(second_store).of(ME)
        me.remember(key="Codeword", value="harmless")
        outcome = me.remember(key="codeword", value=SECRET, text=f"the word is {SECRET}", tags=["wolfram"])
        assert outcome.record is not None
        me.update(outcome.record.id, text=f"the word, {SECRET}, is known", entities=[SECRET])
        for number in range(20):
            me.remember(key=f"other {number}", value="v")
        assert second.get(key="codeword") is not None  # the second client now caches the value
        assert me.stats().snapshot_parts
        assert _found_in_files(tmp_path), "the search would not find anything"
        if method == "key":
            assert me.forget(key="codeword").records == 2
        elif method == "id":
            assert me.forget(id=outcome.record.id).records == 1
        else:
            assert me.forget_all().records == 22
        for number in range(20):
            second.remember(key=f"third {number}", value="w")  # also writes a snapshot of its cached state
        assert second.stats().snapshot_parts
        assert second.get(key="codeword") is None
        assert me.rebuild().equal
        assert second.rebuild().equal
        assert SECRET not in repr(second.history("codeword"))
        _compact(store)
        assert not _found_in_files(tmp_path)
    assert not _found_in_files(tmp_path)


def test_tombstone_hides_the_value_and_the_next_writer_erases_it(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_memory_store()
    clock = SetClock()
    me = SyncMemoryClient(store, clock=clock).of(somebody())
    old = me.remember(key="codeword", value=SECRET).record
    clock.move(days=1)
    me.remember(key="codeword", value=f"{SECRET} too")
    assert old is not None

    def crash(*_: object, **__: object) -> None:
        raise StoreUnavailable("the process crashes here")

    with monkeypatch.context() as patched:
        patched.setattr(store, "redact_events", crash)
        with pytest.raises(StoreUnavailable):
            me.forget(key="codeword")
    agent = stream_of(me.principal.subject("user"))
    assert SECRET in repr(store.load_run(agent, "records").log), "the erasure must be unfinished"
    other = SyncMemoryClient(store, clock=clock).of(me.principal)
    for client in (me, other):
        assert client.get(key="codeword") is None
        assert client.history("codeword") == ()
        assert client.as_of(clock.time) == client.as_of(clock.time - timedelta(hours=1)) == ()
        assert client.list(status="superseded") == ()
        assert client.explain(old.id) is None
        assert SECRET.encode() not in client.export_jsonl()
    other.remember(key="another", value="v")
    assert SECRET not in repr(store.load_run(agent, "records").log)
    assert me.rebuild().equal


_WRITERS: dict[str, Callable[[SyncMemory], object]] = {
    "remember": lambda me: me.remember(key="another", value="v"),
    "update": lambda me: me.update(me.list()[0].id, text="words"),
    "derive": lambda me: me.derive("agent", f"run {me.principal.tenant}"),
    "import": lambda me: me.import_jsonl(me.export_jsonl()),
    "forget again": lambda me: me.forget(key="codeword"),
    "forget another key": lambda me: me.forget(key="unrelated"),
    "forget all": lambda me: me.forget_all(),
    "maintain": lambda me: me.maintain(),
    "rebuild": lambda me: me.rebuild(),
    "note_stop": lambda me: me.note_stop("llm_timeout", phase="apply"),
}


@pytest.mark.parametrize("call", _WRITERS.values(), ids=_WRITERS)
def test_every_writing_call_finishes_an_erasure(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch, call: Callable[[SyncMemory], object]
) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    store.append_events("agent", f"run {me.principal.tenant}", new_event(UserMessage("tone=dry")))
    other = SyncMemoryClient(open_memory_store(), extractor=SaidPreferences()).of(me.principal)
    me.remember(key="unrelated", value="v")
    me.remember(key="codeword", value=SECRET)
    assert other.get(key="codeword") is not None

    def crash(*_: object, **__: object) -> None:
        raise StoreUnavailable("the process crashes here")

    with monkeypatch.context() as patched:
        patched.setattr(store, "redact_events", crash)
        with pytest.raises(StoreUnavailable):
            me.forget(key="codeword")
    agent = stream_of(me.principal.subject("user"))
    assert SECRET in repr(store.load_run(agent, "records").log), "the erasure must be unfinished"
    call(other)
    stream = store.load_run(agent, "records")
    assert SECRET not in repr(stream.log)
    tombstones = [event.data for event in stream.log if isinstance(event.data, MemoryTombstone)]
    assert sum(2 in tombstone.erased for tombstone in tombstones) == 1
    assert other.rebuild().equal
    assert me.rebuild().equal


def test_forget_also_erases_a_record_written_while_it_reads(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    other = SyncMemoryClient(open_memory_store()).of(me.principal)
    me.remember(key="codeword", value="old")
    raw: Any = store.load_run

    def load_run(agent: str, run: str, **options: Any) -> Any:
        snapshot = raw(agent, run, **options)
        if not options.get("after"):
            monkeypatch.undo()
            other.remember(key="codeword", value=SECRET)
        return snapshot

    monkeypatch.setattr(store, "load_run", load_run)
    assert me.forget(key="codeword").records == 2
    assert other.get(key="codeword") is None
    assert SECRET not in repr(raw(stream_of(me.principal.subject("user")), "records").log)


@pytest.mark.parametrize("evidence", [False, True])
def test_forget_redacts_the_source_run_only_with_evidence(open_memory_store: OpenStore, evidence: bool) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody())
    run = f"run {me.principal.tenant}"
    store.append_events("agent", run, *map(new_event, [UserMessage("hello"), UserMessage(f"codeword={SECRET}")]))
    me.derive("agent", run)
    report = me.forget(key="codeword", evidence=evidence)
    assert (report.records, report.evidence) == (1, int(evidence))
    log = store.load_run("agent", run).log
    assert (SECRET in repr(log)) is not evidence
    assert log[0].data == UserMessage("hello")


def test_forget_keeps_evidence_in_runs_that_are_not_linked(open_memory_store: OpenStore) -> None:
    """An import may cite any event as evidence, so only linked runs are redacted."""
    store = open_memory_store()
    client = SyncMemoryClient(store, extractor=SaidPreferences())
    first, other = client.of(somebody()), client.of(somebody())
    run = f"run {first.principal.tenant}"
    store.append_events("agent", run, new_event(UserMessage("codeword=x")))
    first.derive("agent", run)
    exported = first.export_jsonl()
    assert [outcome.action for outcome in other.import_jsonl(exported).outcomes] == ["written"]
    assert other.forget(key="codeword", evidence=True).evidence == 0
    assert store.load_run("agent", run).log[0].data == UserMessage("codeword=x")


def _injected(*records: str, **more: JsonValue) -> Event:
    data: dict[str, JsonValue] = {"text": f"the word is {SECRET}", "records": list(records)}
    return new_event(payload_from_map("injected_context", data | more))


@pytest.mark.parametrize("method", ["key", "id", "all"])
@pytest.mark.parametrize("evidence", [False, True])
def test_forget_with_evidence_redacts_injected_contexts_with_the_record(
    open_memory_store: OpenStore, method: str, evidence: bool
) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody())
    derived, linked, unlinked = (f"{name} {me.principal.tenant}" for name in ("derived", "linked", "unlinked"))
    old = me.remember(key="codeword", value="wolfram").record
    new = me.remember(key="codeword", value=SECRET).record
    unrelated = me.remember(key="unrelated", value="v").record
    assert old is not None
    assert new is not None
    assert unrelated is not None
    store.append_events("agent", derived, new_event(UserMessage("hello")))
    me.derive("agent", derived)
    # Contexts injected after the run was derived are redacted too.
    store.append_events("agent", derived, _injected(unrelated.id, new.id), _injected(unrelated.id))
    store.append_events("agent", linked, _injected(), _injected(new.id), new_event(UserMessage(new.id)))
    me.link_run("agent", linked)
    store.append_events("agent", unlinked, _injected(new.id))
    if method == "key":
        report = me.forget(key="codeword", evidence=evidence)
    elif method == "id":
        report = me.forget(id=new.id, evidence=evidence)
    else:
        report = me.forget_all(evidence=evidence)
    remaining = {
        (run.partition(" ")[0], event.seq)
        for run in (derived, linked, unlinked)
        for event in store.load_run("agent", run, types=["injected_context"]).log
        if SECRET in repr(event)
    }
    everything = {("derived", 2), ("derived", 3), ("linked", 1), ("linked", 2), ("unlinked", 1)}
    redacted = {("derived", 2), ("linked", 2)}
    if method == "all":
        redacted.add(("derived", 3))
    assert remaining == (everything - redacted if evidence else everything)
    assert report.evidence == (len(redacted) if evidence else 0)
    assert store.load_run("agent", linked).log[2].data == UserMessage(new.id)


def test_forget_redacts_an_injected_context_that_quotes_the_message(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody())
    run = f"run {me.principal.tenant}"
    messages = [UserMessage(f"codeword={SECRET}"), AssistantMessage("Noted."), UserMessage("hello")]
    store.append_events("agent", run, *map(new_event, messages))
    me.derive("agent", run)
    store.append_events(
        "agent",
        run,
        *(_injected(messages=[{"agent": "agent", "run": run, "seq": seq}]) for seq in (1, 3)),
    )
    assert me.forget(key="codeword", evidence=True).evidence == 2
    assert [event.seq for event in store.load_run("agent", run, types=["injected_context"]).log] == [5]


def test_forget_all_redacts_injected_contexts_in_the_given_runs(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    run = f"run {me.principal.tenant}"
    record = me.remember(key="codeword", value=SECRET).record
    assert record is not None
    store.append_events("agent", run, _injected(record.id))
    assert me.forget_all(runs=[("agent", run)], evidence=True).evidence == 1
    assert SECRET not in repr(store.load_run("agent", run).log)


@pytest.mark.parametrize("with_record", [False, True])
def test_forget_all_redacts_contexts_that_name_only_messages(
    open_memory_store: OpenStore, *, with_record: bool
) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    linked, listed, unlinked = (f"{name} {me.principal.tenant}" for name in ("linked", "listed", "unlinked"))
    if with_record:
        me.remember(key="codeword", value="wolfram")
    for run in (linked, listed, unlinked):
        store.append_events("agent", run, new_event(UserMessage(f"the word is {SECRET}")))
    for quoted in (linked, listed, unlinked):
        store.append_events("agent", linked, _injected(messages=[{"agent": "agent", "run": quoted, "seq": 1}]))
    me.link_run("agent", linked)
    assert me.forget_all(evidence=True, runs=[("agent", listed)]).evidence == 2
    assert [event.seq for event in store.load_run("agent", linked, types=["injected_context"]).log] == [4]


def test_concurrent_write_does_not_change_the_redacted_events(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    other = SyncMemoryClient(open_memory_store()).of(me.principal)
    run = f"run {me.principal.tenant}"
    record = me.remember(key="codeword", value=SECRET).record
    assert record is not None
    store.append_events("agent", run, _injected(record.id))
    me.link_run("agent", run)
    raw: Any = store.redact_events

    def redact_events(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        other.remember(key="other", value="v")
        return raw(*arguments, **options)

    monkeypatch.setattr(store, "redact_events", redact_events)
    assert me.forget(key="codeword", evidence=True).evidence == 1
    assert not store.load_run("agent", run, types=["injected_context"]).log


def test_tombstone_holds_only_positions(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody())
    run = f"run {me.principal.tenant}"
    store.append_events("agent", run, new_event(UserMessage(f"codeword={SECRET}")))
    me.derive("agent", run)
    me.forget(key="codeword")
    stream = store.load_run(stream_of(me.principal.subject("user")), "records")
    (tombstone,) = (event for event in stream.log if event.type == "memory_tombstone")
    assert tombstone.data.to_map() == {
        "erased": [1],
        "sources": [{"agent": "agent", "run": run, "seq": 1, "item": "said/1"}],
    }
    assert "codeword" not in repr(stream.log)


def test_tombstone_of_forget_all_is_short(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    for number in range(5):
        me.remember(key=str(number), value="v")
    me.forget_all()
    agent = stream_of(me.principal.subject("user"))
    (tombstone,) = (event for event in store.load_run(agent, "records").log if event.type == "memory_tombstone")
    assert tombstone.data.to_map() == {
        "erased": [1, 2, 3, 4, 5],
        "until": [{"agent": agent, "run": "records", "seq": 5}],
    }


def test_forgotten_value_is_absent_from_mongodb(
    mongo_server: MongoServer | GivenServer, mongo_uri: str, mongo_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "EVENTS_BETWEEN", 7)

    def database_holds_secret() -> bool:
        """Return whether a document or an index holds the value or its key."""
        with mongo_server.client() as client:
            database = client[mongo_database]
            documents: list[object] = []
            for name in database.list_collection_names():
                documents += database[name].find()
                for index in database[name].list_indexes():
                    fields = list(index["key"])
                    documents += [database[name].distinct(field) for field in fields]
                    documents += database[name].find({}, {"_id": 0, **dict.fromkeys(fields, 1)}).hint(index["name"])
            return any(text in repr(document) for document in documents for text in (SECRET, "codeword-4711"))

    with open_sync_store(mongo_uri) as store, open_sync_store(mongo_uri) as second_store:
        me, second = (SyncMemoryClient(handle).of(ME) for handle in (store, second_store))
        me.remember(key="codeword-4711", value=SECRET)
        for number in range(20):
            me.remember(key=f"other {number}", value="v")
        assert second.get(key="codeword-4711") is not None
        assert me.stats().snapshot_parts
        assert database_holds_secret(), "the search would not find anything"
        assert me.forget(key="codeword-4711").records == 1
        assert not database_holds_secret()
        for number in range(20):
            second.remember(key=f"third {number}", value="w")
        assert second.rebuild().equal
        assert second.stats().snapshot_parts
        assert not database_holds_secret()
