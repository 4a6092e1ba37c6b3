"""Tests that a memory falls with its evidence: at once for every call, and from the store with the next write."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import JsonValue, SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.capabilities import Compacts, KeepsIndexes
from agent_memory_log.cli.main import main
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.events.registry import payload_from_map
from agent_memory_log.memory import (
    Candidate,
    Evidence,
    Extraction,
    Link,
    Record,
    RunSlice,
    SyncMemory,
    SyncMemoryClient,
    stream_of,
)
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.upkeep.maintaining import owing_streams, purge_all, purge_indexes
from agent_memory_log.steps import run_sync
from agent_memory_log.store import Erasures
from tests.memory.stores import OpenStore, SaidPreferences, SetClock, open_memory_store, somebody, store_url
from tests.store_clock import StoreClock

__all__ = ["open_memory_store", "store_url"]

AGENT = "agent"
SECRET = "wolfram-4711"

Erase = Callable[[SyncStore, str, int], None]


def redact(store: SyncStore, run: str, seq: int) -> None:
    store.redact_events(AGENT, run, [seq])


def delete(store: SyncStore, run: str, _: int) -> None:
    store.delete_run(AGENT, run)


ERASING = pytest.mark.parametrize("erase", [redact, delete])


def say(memory: SyncMemory, run: str, text: str) -> int:
    """Append a statement to a run of this memory, derive from it, and return its seq."""
    seq = memory._store.get().append_events(AGENT, run, new_event(UserMessage(text))).version
    memory.derive(AGENT, run)
    return seq


def memory_of(store: SyncStore) -> tuple[SyncMemory, str]:
    """Return the memory of a new person, and the name of a run of theirs."""
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody(user="42"))
    return me, f"run of {me.principal.tenant}"


def other_client(open_store: OpenStore, memory: SyncMemory) -> SyncMemory:
    return SyncMemoryClient(open_store(), extractor=SaidPreferences()).of(memory.principal)


def everything(memory: SyncMemory, record: str) -> str:
    """Return the text of all that the calls of a memory tell about a key ``name``."""
    now = datetime.now(UTC) + timedelta(days=1)
    return repr(
        (
            memory.get(key="name"),
            memory.get(id=record),
            memory.list(),
            memory.list(status="superseded"),
            memory.search(SECRET),
            memory.search("what is my name?"),
            memory.context("what is my name?"),
            memory.history("name"),
            memory.as_of(now),
            memory.explain(record),
            memory.export_jsonl(),
        )
    )


def stream_text(store: SyncStore, memory: SyncMemory) -> str:
    return repr(store.load_run(stream_of(memory.principal.subject("user")), STREAM_RUN).log)


@ERASING
@pytest.mark.parametrize("is_superseded", [False, True])
def test_no_call_returns_a_memory_without_evidence(
    open_memory_store: OpenStore, erase: Erase, is_superseded: bool
) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    seq = say(me, run, f"name={SECRET}")
    (record,) = me.list()
    if is_superseded:
        say(me, f"{run} b", "name=other")
    warm = other_client(open_memory_store, me)
    assert SECRET in everything(warm, record.id)
    erase(store, run, seq)
    for memory in (warm, me, other_client(open_memory_store, me)):
        assert SECRET not in everything(memory, record.id)
    me.remember(key="tone", value="dry")
    assert SECRET not in stream_text(store, me)
    assert me.rebuild().equal
    assert me.rederive() is not None
    assert SECRET not in everything(warm, record.id)


@ERASING
@pytest.mark.parametrize("writes", [SyncMemory.purge, SyncMemory.maintain, SyncMemory.rebuild])
def test_every_write_erases_it_from_the_stream(
    open_memory_store: OpenStore, erase: Erase, writes: Callable[[SyncMemory], object]
) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    erase(store, run, say(me, run, f"name={SECRET}"))
    other = other_client(open_memory_store, me)
    assert other.list() == ()
    assert SECRET in stream_text(store, me)
    assert stream_of(me.principal.subject("user")) in run_sync(owing_streams(), store)
    writes(other)
    assert SECRET not in stream_text(store, me)
    assert stream_of(me.principal.subject("user")) not in run_sync(owing_streams(), store)
    assert me.rebuild().equal


def test_purge_all_erases_in_every_subject(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    memories = [memory_of(store) for _ in range(3)]
    for me, run in memories:
        say(me, run, f"name={SECRET}")
        store.delete_run(AGENT, run)
    run_sync(purge_all(datetime.now(UTC)), store)
    for me, _ in memories:
        assert SECRET not in stream_text(store, me)


@ERASING
def test_a_restatement_supports_a_memory_until_it_is_erased_too(open_memory_store: OpenStore, erase: Erase) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    seqs = [say(me, f"{run} {name}", "name=Kim") for name in ("a", "b")]
    assert len(me.list()) == 1
    erase(store, f"{run} a", seqs[0])
    cold = other_client(open_memory_store, me)
    for memory in (me, cold):
        assert [record.value for record in memory.list()] == ["Kim"]
    me.purge()
    erase(store, f"{run} b", seqs[1])
    for memory in (me, cold, other_client(open_memory_store, me)):
        assert memory.list() == ()


@ERASING
def test_a_restatement_by_a_client_that_missed_the_erasure_supports_it(
    open_memory_store: OpenStore, erase: Erase
) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    seq = say(me, run, "name=Kim")
    erase(store, run, seq)
    assert me.list() == ()
    # This client read the journal before the erasure, and then wrote.
    late = other_client(open_memory_store, me)
    late._store._source = without_journal(late._store.get())
    say(late, f"{run} b", "name=Kim")
    assert [record.value for record in me.list()] == ["Kim"]


def without_journal(store: SyncStore) -> Any:
    class Late:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def erasures(self, **_: object) -> Erasures:
            return Erasures(0)

    return Late()


@ERASING
def test_a_direct_statement_rests_on_itself(open_memory_store: OpenStore, erase: Erase) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    me.remember(key="tone", value="dry")
    seq = say(me, run, "tone=dry; name=Kim; city=Oslo")
    me.remember(key="city", value="Oslo")
    erase(store, run, seq)
    for memory in (me, other_client(open_memory_store, me)):
        assert sorted(record.key for record in memory.list()) == ["city", "tone"]


class Joins:
    """A merger that keeps both values."""

    def merge(self, record: Record, candidate: Candidate, /) -> str | None:
        return f"{record.value} and {getattr(candidate.data, 'value', '')}"


@ERASING
def test_a_merged_value_falls_with_any_part(open_memory_store: OpenStore, erase: Erase) -> None:
    store = open_memory_store()
    principal = somebody(user="42")

    def client() -> SyncMemory:
        return SyncMemoryClient(open_memory_store(), extractor=SaidPreferences(), merger=Joins()).of(principal)

    me, run = client(), f"run of {principal.tenant}"
    seqs = [say(me, f"{run} {name}", f"food=fine {name}") for name in ("soup", "bread")]
    assert [record.value for record in me.list()] == ["fine soup and fine bread"]
    erase(store, f"{run} bread", seqs[1])
    for memory in (me, client()):
        assert "fine bread" not in repr(memory.list())
    me.purge()
    assert "fine bread" not in stream_text(store, me)


def stated(me: SyncMemory, key: str, name: str) -> Record:
    """Append a statement to a run of its own, and remember it with this evidence. Return the record."""
    run, value = f"{me.principal.tenant} {name}", f"fine {name}"
    me._store.get().append_events(AGENT, run, new_event(UserMessage(value)))
    record = me.remember(key=key, value=value, evidence=[Evidence(AGENT, run, 1)]).record
    assert record is not None
    return record


def restored(me: SyncMemory, record: Record, _: SetClock) -> SyncMemory:
    me.delete(record.id)
    me.restore(record.id)
    return me


def reopened(me: SyncMemory, record: Record, _: SetClock) -> SyncMemory:
    other = me.remember(key="drink", value="tea", links=[Link("contradicts", record.id)]).record
    assert other is not None
    me.resolve(record.id, other.id, keep="second")
    me.unresolve(record.id, other.id)
    return me


def consolidated(me: SyncMemory, clock: SetClock) -> str:
    stated(me, "trip.drink", "tea")
    clock.move(days=5)
    (change,) = me.maintain(profile_tokens=1, weak_below=0).consolidated
    return change.record


def separated(me: SyncMemory, _: Record, clock: SetClock) -> SyncMemory:
    me.separate(consolidated(me, clock))
    return me


def returned(me: SyncMemory, _: Record, clock: SetClock) -> SyncMemory:
    consolidated(me, clock)
    me._store.get().redact_events(AGENT, f"{me.principal.tenant} tea", [1])
    assert [change.key for change in me.maintain(profile_tokens=1_000).returned] == ["trip.food"]
    return me


def imported(me: SyncMemory, _: Record, clock: SetClock) -> SyncMemory:
    other = SyncMemoryClient(me._store.get(), clock=clock).of(somebody(user="43"))
    other.import_jsonl(me.export_jsonl())
    return other


@pytest.mark.parametrize("written_again", [restored, reopened, separated, returned, imported])
@pytest.mark.parametrize("part", ["soup", "bread"])
def test_a_merged_value_that_is_written_again_falls_with_any_part(
    open_memory_store: OpenStore, written_again: Callable[[SyncMemory, Record, SetClock], SyncMemory], part: str
) -> None:
    clock = SetClock()
    me = SyncMemoryClient(open_memory_store(), merger=Joins(), clock=clock).of(somebody(user="42"))
    stated(me, "trip.food", "soup")
    record = stated(me, "trip.food", "bread")
    memory = written_again(me, record, clock)
    assert "fine soup and fine bread" in [active.value for active in memory.list()]
    me._store.get().redact_events(AGENT, f"{me.principal.tenant} {part}", [1])
    assert f"fine {part}" not in repr(memory.list())
    memory.purge()
    assert f"fine {part}" not in stream_text(me._store.get(), memory)


def test_the_parts_of_a_restored_record_return_when_it_falls(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = SyncMemoryClient(open_memory_store(), clock=clock).of(somebody(user="42"))
    stated(me, "trip.food", "soup")
    summary = consolidated(me, clock)
    me.delete(summary)
    me.restore(summary)
    me._store.get().redact_events(AGENT, f"{me.principal.tenant} soup", [1])
    assert me.list() == ()
    me.maintain(profile_tokens=1_000)
    assert [record.value for record in me.list()] == ["fine tea"]


@pytest.mark.parametrize("part", ["soup", "bread"])
def test_an_update_of_its_links_keeps_the_parts_of_a_merged_value(open_memory_store: OpenStore, part: str) -> None:
    me = SyncMemoryClient(open_memory_store(), merger=Joins()).of(somebody(user="42"))
    stated(me, "food", "soup")
    me.update(stated(me, "food", "bread").id, links=[])
    me._store.get().redact_events(AGENT, f"{me.principal.tenant} {part}", [1])
    assert me.list() == ()


@ERASING
def test_an_erasure_while_it_is_learnt_blocks_the_memory(open_memory_store: OpenStore, erase: Erase) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    extractor = SaidPreferences()

    class ErasesMeanwhile:
        name = "said"

        def extract(self, new: RunSlice, /) -> Extraction:
            erase(store, run, 1)
            return extractor.extract(new)

    store.append_events(AGENT, run, new_event(UserMessage(f"name={SECRET}")))
    report = me.derive(AGENT, run, extractor=ErasesMeanwhile())
    assert [(outcome.action, outcome.reason) for outcome in report.outcomes] == [("blocked", "evidence_erased")]
    assert me.list() == ()
    assert SECRET not in stream_text(store, me)


def test_a_recreated_run_is_learnt_from_again(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    say(me, run, "name=Kim")
    store.delete_run(AGENT, run)
    assert me.list() == ()
    say(me, run, "name=Kim")
    for memory in (me, other_client(open_memory_store, me)):
        assert [record.value for record in memory.list()] == ["Kim"]


def test_a_memory_outlives_a_run_that_expires(open_memory_store: OpenStore, store_clock: StoreClock) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    event = new_event(UserMessage("name=Kim"))
    store.append_events(AGENT, run, event, meta=store_clock.meta_with_an_end())
    me.derive(AGENT, run)
    store_clock.pass_the_end()
    assert store.peek_runs([(AGENT, run)]) == (None,)
    assert store.expire_runs().runs == 1
    for memory in (me, other_client(open_memory_store, me)):
        assert [record.value for record in memory.list()] == ["Kim"]


@ERASING
def test_erased_evidence_cannot_be_written_or_imported_again(open_memory_store: OpenStore, erase: Erase) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    seq = say(me, run, f"name={SECRET}")
    exported = me.export_jsonl()
    erase(store, run, seq)
    other = SyncMemoryClient(store).of(somebody(user="42"))
    assert [outcome.action for outcome in other.import_jsonl(exported).outcomes] == ["blocked"]
    outcome = other.remember(key="name", value=SECRET, evidence=[Evidence(AGENT, run, seq)])
    assert (outcome.action, outcome.reason) == ("blocked", "evidence_erased")
    assert SECRET not in stream_text(store, other)


def test_a_copy_of_a_memory_is_kept_by_a_store_that_never_held_its_runs(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    seq = say(me, run, "name=Kim")
    stream = stream_of(me.principal.subject("user"))
    with open_sync_store("memory:") as target:
        target.append_events(AGENT, "another run", new_event(UserMessage("a")), new_event(UserMessage("b")))
        target.redact_events(AGENT, "another run", [seq])
        target.delete_run(AGENT, "another run")
        copy = SyncMemoryClient(target).of(me.principal)
        target.append_events(stream, STREAM_RUN, *store.load_run(stream, STREAM_RUN).log, reserved=True)
        assert [record.value for record in copy.list()] == ["Kim"]
        assert run


@ERASING
def test_the_event_id_finds_evidence_that_a_copy_renumbered(open_memory_store: OpenStore, erase: Erase) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    store.append_events(AGENT, run, *(new_event(UserMessage(f"{number}")) for number in range(3)))
    event = store.append_events(AGENT, run, new_event(UserMessage("the name"))).events[0]
    first = Evidence(AGENT, run, 1, event_id=event.event_id)  # its place in another store
    far = Evidence(AGENT, run, 99, event_id=event.event_id)
    for key, evidence in (("near", first), ("far", far)):
        me.remember(key=key, value="Kim", evidence=[evidence])
    store.redact_events(AGENT, run, [1])
    for memory in (me, other_client(open_memory_store, me)):
        assert sorted(record.key for record in memory.list()) == ["far", "near"]
    erase(store, run, event.seq)
    for memory in (me, other_client(open_memory_store, me)):
        assert memory.list() == ()


@ERASING
def test_injected_contexts_that_quote_it_are_redacted_too(open_memory_store: OpenStore, erase: Erase) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    seq = say(me, run, f"name={SECRET}")
    (record,) = me.list()
    contexts: list[dict[str, JsonValue]] = [
        {"text": SECRET, "records": [record.id], "messages": []},
        {"text": SECRET, "records": [], "messages": [{"agent": AGENT, "run": run, "seq": seq}]},
        {"text": "harmless", "records": ["another"], "messages": []},
    ]
    later = f"{run} b"
    for context in contexts:
        store.append_events(AGENT, later, new_event(payload_from_map("injected_context", context)))
    say(me, later, "tone=dry")
    erase(store, run, seq)
    me.purge()
    log = store.load_run(AGENT, later).log
    assert SECRET not in repr(log)
    assert "harmless" in repr(log)


def test_an_unchanged_journal_costs_a_call_one_look_up(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    for number in range(5):
        say(me, f"{run} {number}", f"key{number}=value")
    me.list()
    calls: list[object] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                calls.append((name, options.get("runs")))
                return getattr(store, name)(*arguments, **options)

            return call

    watched: Any = Watched()
    me._store._source = watched
    assert len(me.list()) == 5
    assert calls == [("load_run", None), ("erasures", ())]


@pytest.mark.parametrize("calls", range(4))
def test_a_process_that_dies_while_it_purges_leaves_the_rest_to_the_next(
    open_memory_store: OpenStore, calls: int
) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    store.delete_run(AGENT, run if say(me, run, f"name={SECRET}") else "")
    left = calls

    class Dies:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def append_events(self, *arguments: Any, **options: Any) -> Any:
            return self.write("append_events", *arguments, **options)

        def redact_events(self, *arguments: Any, **options: Any) -> Any:
            return self.write("redact_events", *arguments, **options)

        def write(self, name: str, *arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise StoreUnavailable("the process dies here")
            return getattr(store, name)(*arguments, **options)

    dying: Any = Dies()
    try:
        SyncMemoryClient(dying).of(me.principal).purge()
    except StoreUnavailable:
        assert calls < 3
    for memory in (me, other_client(open_memory_store, me)):
        assert memory.list() == ()
    other_client(open_memory_store, me).remember(key="tone", value="dry")
    assert SECRET not in stream_text(store, me)


def test_the_file_holds_no_byte_of_it_after_compact(tmp_path: Path) -> None:
    with open_sync_store(f"sqlite:///{tmp_path / 'memory.db'}") as store:
        me, run = memory_of(store)
        seq = say(me, run, f"name={SECRET}; tone=dry")
        for number in range(1_100):
            me.remember(key=f"key {number % 50}", value=str(number))  # so that a snapshot holds it too
        me.search(SECRET)
        store.redact_events(AGENT, run, [seq])
        run_sync(purge_all(datetime.now(UTC)), store)
        assert isinstance(store, KeepsIndexes)
        run_sync(purge_indexes(store.index_folder), store)
        assert isinstance(store, Compacts)
        store.compact()
        searched = subprocess.run(["grep", "-rqa", SECRET, str(tmp_path)], check=False)
        assert searched.returncode == 1


def test_an_export_of_reserved_runs_holds_no_word_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with open_sync_store(url) as store:
        me, run = memory_of(store)
        say(me, run, f"name={SECRET}; tone=dry")
        store.delete_run(AGENT, run)
    assert main(["export", "--store", url, "--all"]) == 0
    assert main(["export", "--store", url, "--all", "--reserved"]) == 0
    exported = capsys.readouterr().out
    assert "memory_tombstone" in exported
    assert SECRET not in exported


def test_a_copy_of_reserved_runs_holds_no_word_of_it(tmp_path: Path) -> None:
    url, target = f"sqlite:///{tmp_path / 'memory.db'}", tmp_path / "copy.db"
    with open_sync_store(url) as store:
        me, run = memory_of(store)
        say(me, run, f"name={SECRET}; tone=dry")
        store.delete_run(AGENT, run)
    assert main(["copy", url, f"sqlite:///{target}"]) == 0
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("copy.db*"))
    with open_sync_store(f"sqlite:///{target}") as copied:
        assert copied.list_runs(include_reserved=True).runs


def test_a_copied_run_with_a_redaction_erases_in_its_new_store(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me, run = memory_of(store)
    seq = say(me, run, f"name={SECRET}")
    stream = stream_of(me.principal.subject("user"))
    before = store.load_run(stream, STREAM_RUN).log
    store.redact_events(AGENT, run, [seq])
    with open_sync_store("memory:") as target:
        target.append_events(AGENT, run, *store.load_run(AGENT, run).log)
        target.append_events(stream, STREAM_RUN, *before, reserved=True)
        assert SyncMemoryClient(target).of(me.principal).list() == ()
