"""What a caller may get wrong with an operation, and what a store from before the envelope holds."""

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


def test_an_iterator_in_a_struct_is_refused_and_not_used_up(me: SyncMemory) -> None:
    me.remember(key="language", value="english")
    calls: list[Operation[Any]] = [
        ForgetAll(scopes=(scope for scope in ["user"])),  # type: ignore[arg-type]  # what is tested
        Write(iter([])),  # type: ignore[arg-type]  # what is tested
        Search("language", kinds=(kind for kind in ["preference"])),  # type: ignore[arg-type]  # what is tested
    ]
    for call in calls:
        with pytest.raises(InvalidArgument, match="must be a tuple"):
            me.execute(call)
    assert me.get(key="language") is not None


def test_what_is_no_operation_of_the_table_is_refused(me: SyncMemory) -> None:
    class Mine(Operation[None], frozen=True):
        """Not in the table."""

    for call in (Mine(), "get", None):
        with pytest.raises(InvalidArgument, match="expected an operation"):
            me.execute(call)  # type: ignore[arg-type]  # what is tested


def test_sets_are_taken_in_one_order(me: SyncMemory) -> None:
    tags: Any = {"c", "a", "b"}
    record = me.remember(key="k", value="v", tags=tags).record
    assert record is not None
    assert record.tags == ("a", "b", "c")


def test_numbers_of_another_class_are_numbers(me: SyncMemory) -> None:
    class Share(float):
        pass

    record = me.remember(key="k", value="v", importance=Share(0.7)).record
    assert record is not None
    assert record.importance == 0.7


def test_an_event_id_of_what_was_blocked_is_not_stored() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(Principal("acme", {"user": "1"}))
        outcome = me.remember(key="pw", value=SECRET, evidence=[Evidence("a", "r", 2, event_id=SECRET)])
        assert outcome.action == "blocked"
        runs = store.list_runs(include_reserved=True).runs
        stored = [event for run in runs for event in store.load_run(run.agent, run.run).log]
        assert any(isinstance(event.data, MemoryBlocked) for event in stored)
        assert SECRET not in repr(stored)


def test_an_event_id_that_the_run_does_not_hold_gives_way_to_the_place() -> None:
    from agent_memory_log import UserMessage, new_event  # noqa: PLC0415  # only here

    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(Principal("acme", {"user": "1"}))
        store.append_events("a", "r", new_event(UserMessage("I like zebras")))
        me.link_run("a", "r")
        me.remember(key="animal", value="zebras", evidence=[Evidence("a", "r", 1, event_id="not there")])
        assert me.forget(key="animal", evidence=True).evidence == 1
        assert store.load_run("a", "r").log[0].type == "redacted"


def test_changes_that_stood_in_a_map_of_their_own_are_read() -> None:
    old = MemoryChanged.from_map({"record": "id", "changes": {"importance": 0.9, "tags": ["t"]}})
    assert (old.record, old.changed, old.importance, old.tags) == ("id", ("importance", "tags"), 0.9, ("t",))


def test_a_kind_with_a_type_of_memory_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"memory_type of .*Odd must be one of semantic, episodic, procedural"):

        @register_kind
        class Odd(RecordData, frozen=True):  # pyright: ignore[reportUnusedClass]  # it is refused
            kind: ClassVar[str] = "odd"
            memory_type: ClassVar[str] = "working"


def test_settings_too_deep_are_refused() -> None:
    assert issubclass(MemorySettings, Settings)
    with pytest.raises(InvalidArgument, match="not JSON"):
        MemorySettings.from_json("[" * 100_000)
