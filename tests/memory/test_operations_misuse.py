"""Tests of operations with wrong or unusual arguments, and of events written before the envelope existed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from agent_memory_log import open_sync_store
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory import Evidence, Principal, RecordData, SyncMemory, SyncMemoryClient, register_kind
from agent_memory_log.memory.operations import ForgetAll, Search, Write
from agent_memory_log.memory.policy.settings import MemorySettings
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.memory.stream.payloads import MemoryBlocked, MemoryChanged
from agent_memory_log.models.settings import Settings

SECRET = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q" * 2


@pytest.fixture
def me() -> Iterator[SyncMemory]:
    with open_sync_store("memory:") as store:
        yield SyncMemoryClient(store).of(Principal("acme", {"user": "1"}))


def test_iterator_in_an_operation_is_refused(me: SyncMemory) -> None:
    me.remember(key="language", value="english")
    calls: list[Operation[Any]] = [
        ForgetAll(scopes=(scope for scope in ["user"])),  # type: ignore[arg-type]  # must be refused
        Write(iter([])),  # type: ignore[arg-type]  # must be refused
        Search("language", kinds=(kind for kind in ["preference"])),  # type: ignore[arg-type]  # must be refused
    ]
    for call in calls:
        with pytest.raises(InvalidArgument, match="must be a tuple"):
            me.execute(call)
    assert me.get(key="language") is not None


def test_execute_refuses_operations_outside_the_table(me: SyncMemory) -> None:
    class CustomOperation(Operation[None], frozen=True):
        """An operation outside the table."""

    for call in (CustomOperation(), "get", None):
        with pytest.raises(InvalidArgument, match="expected an operation"):
            me.execute(call)  # type: ignore[arg-type]  # must be refused


def test_set_of_tags_is_sorted(me: SyncMemory) -> None:
    tags: Any = {"c", "a", "b"}
    record = me.remember(key="k", value="v", tags=tags).record
    assert record is not None
    assert record.tags == ("a", "b", "c")


def test_subclass_of_float_is_accepted(me: SyncMemory) -> None:
    class Share(float):
        pass

    record = me.remember(key="k", value="v", importance=Share(0.7)).record
    assert record is not None
    assert record.importance == 0.7


def test_event_id_of_a_blocked_candidate_is_not_stored() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(Principal("acme", {"user": "1"}))
        outcome = me.remember(key="pw", value=SECRET, evidence=[Evidence("a", "r", 2, event_id=SECRET)])
        assert outcome.action == "blocked"
        runs = store.list_runs(include_reserved=True).runs
        stored = [event for run in runs for event in store.load_run(run.agent, run.run).log]
        assert any(isinstance(event.data, MemoryBlocked) for event in stored)
        assert SECRET not in repr(stored)


def test_forget_uses_the_seq_if_the_run_lacks_the_event_id() -> None:
    from agent_memory_log import UserMessage, new_event  # noqa: PLC0415  # only this test needs it

    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(Principal("acme", {"user": "1"}))
        store.append_events("a", "r", new_event(UserMessage("I like zebras")))
        me.link_run("a", "r")
        me.remember(key="animal", value="zebras", evidence=[Evidence("a", "r", 1, event_id="not there")])
        assert me.forget(key="animal", evidence=True).evidence == 1
        assert store.load_run("a", "r").log[0].type == "redacted"


def test_change_event_of_the_old_format_is_read() -> None:
    old = MemoryChanged.from_map({"record": "id", "changes": {"importance": 0.9, "tags": ["t"]}})
    assert (old.record, old.changed, old.importance, old.tags) == ("id", ("importance", "tags"), 0.9, ("t",))


def test_kind_with_an_unknown_memory_type_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"memory_type of .*Odd must be one of semantic, episodic, procedural"):

        @register_kind
        class Odd(RecordData, frozen=True):  # pyright: ignore[reportUnusedClass]  # register_kind refuses it
            kind: ClassVar[str] = "odd"
            memory_type: ClassVar[str] = "working"


def test_too_deeply_nested_settings_are_refused() -> None:
    assert issubclass(MemorySettings, Settings)
    with pytest.raises(InvalidArgument, match="not JSON"):
        MemorySettings.from_json("[" * 100_000)


@pytest.mark.parametrize(
    "evidence", [Evidence("a", "r", 2**70), Evidence("a", "r", 0), Evidence("", "r", 1), Evidence("a", "r" * 600, 1)]
)
def test_a_note_with_invalid_evidence_is_refused(me: SyncMemory, evidence: Evidence) -> None:
    with pytest.raises(InvalidArgument, match=r"^evidence"):
        me.note_stop("why", phase="capture", evidence=[evidence])
    assert me.stats().events == 0
