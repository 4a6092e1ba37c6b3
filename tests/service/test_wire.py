"""Laws of the wire: encoded values are decoded unchanged, and every other form is refused with its path."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import UserMessage, new_event, open_sync_store
from agent_memory_log.errors import AgentMemoryLogError, DecodeError, InvalidArgument
from agent_memory_log.memory import Candidate, Episode, Hits, Principal, SyncMemoryClient
from agent_memory_log.memory.operations import ExportJsonl, ListRecords, Remember, Search, Write
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.problems import error_of, problem_of
from agent_memory_log.service.store_operations import AppendEvents, LoadRun, execute_on_store
from agent_memory_log.service.table import OPERATIONS
from agent_memory_log.service.wire import (
    decode_operation,
    decode_result,
    encode_operation,
    encode_result,
    schemas_of,
)
from agent_memory_log.steps import run_sync
from tests.strategies import events
from tests.test_errors import EXAMPLES


def over_the_wire(value: object) -> Any:
    """Return a JSON value after it was written and read."""
    return msgspec.json.decode(msgspec.json.encode(value))


@given(st.lists(events(), max_size=4))
def test_appended_and_loaded_events_stay_equal(batch: list[Any]) -> None:
    operation = AppendEvents("agent", "run", tuple(batch), expected_version=0)
    decoded = decode_operation(AppendEvents, over_the_wire(encode_operation(operation)))
    assert [event.to_map() for event in decoded.events] == [event.to_map() for event in batch]
    with open_sync_store("memory:") as store:
        try:
            appended = run_sync(execute_on_store(decoded), store)
        except AgentMemoryLogError:
            return  # the same refusal as that of a local append
        snapshot = store.load_run("agent", "run")
        loaded = decode_result(LoadRun, over_the_wire(encode_result(LoadRun, snapshot)))
        assert sorted(set(appended.seqs)) == [event.seq for event in snapshot.log]
        assert loaded.log == snapshot.log
        assert (loaded.version, loaded.types, loaded.meta) == (snapshot.version, snapshot.types, snapshot.meta)


def test_a_redacted_run_keeps_its_reasons() -> None:
    with open_sync_store("memory:") as store:
        store.append_events("agent", "run", *(new_event(UserMessage(message=text)) for text in "ab"))
        store.redact_events("agent", "run", [2], reason="asked")
        snapshot = store.load_run("agent", "run", types=["user_message"])
        loaded = decode_result(LoadRun, over_the_wire(encode_result(LoadRun, snapshot)))
        assert loaded.redactions == {2: "asked"}
        assert loaded.types == frozenset({"user_message"})


def test_results_of_memory_stay_equal() -> None:
    with open_sync_store("memory:") as store:
        memory = SyncMemoryClient(store).of(Principal(tenant="acme", scopes={"user": "42"}))
        candidates = (
            Candidate(Episode(category="error", occurred_at=datetime(2026, 1, 1, tzinfo=UTC)), text="The tests failed"),
        )
        operations: list[Operation[Any]] = [
            Remember(key="language", value="english"),
            Write(candidates),
            ListRecords(),
            Search("language"),
            ExportJsonl(),
        ]
        for operation in operations:
            cls = type(operation)
            assert decode_operation(cls, over_the_wire(encode_operation(operation))) == operation
            result = memory.execute(operation)
            decoded = decode_result(cls, over_the_wire(encode_result(cls, result)))
            assert decoded == result
            assert not isinstance(result, Hits) or decoded.note == result.note


@pytest.mark.parametrize(
    ("cls", "value", "message"),
    [
        (LoadRun, [], "the body must be an object"),
        (LoadRun, {"agent": "a"}, "run is missing"),
        (LoadRun, {"agent": "a", "run": "r", "before": 1}, "has no field 'before', only agent, run, after"),
        (LoadRun, {"agent": "a", "run": 1}, "run must be text"),
        (LoadRun, {"agent": "a", "run": "r", "after": 1.5}, "after must be an integer"),
        (LoadRun, {"agent": "a", "run": "r", "after": True}, "after must be an integer"),
        (LoadRun, {"agent": "a", "run": "r", "types": "x"}, "types must be an array"),
        (LoadRun, {"agent": "a", "run": "r", "types": ["x", 1]}, r"types\[1\] must be text"),
        (Search, {"query": "x", "since": "yesterday"}, "since must be a time such as"),
        (Remember, {"evidence": [{"agent": "a", "run": "r"}]}, r"evidence\[0\].seq is missing"),
        (Remember, {"data": {"kind": "preference"}}, "data must be an object with kind and data"),
        (AppendEvents, {"agent": "a", "run": "r", "events": [], "meta": []}, "meta must be an object"),
    ],
)
def test_another_form_is_refused_with_its_path(cls: type[Operation[Any]], value: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        decode_operation(cls, value)


def test_an_invalid_event_is_refused_with_its_place() -> None:
    body: dict[str, Any] = {
        "agent": "a",
        "run": "r",
        "events": [{"type": "user_message", "timestamp": "now", "data": {}}],
    }
    with pytest.raises(DecodeError, match=r"events\[0\]: user_message: timestamp"):
        decode_operation(AppendEvents, body)


def test_an_integral_float_is_an_integer() -> None:
    assert decode_operation(LoadRun, {"agent": "a", "run": "r", "after": 3.0}) == LoadRun("a", "r", after=3)


def test_every_operation_has_a_schema_without_local_fields() -> None:
    schemas = schemas_of(OPERATIONS.values())
    assert {operation.__name__ for operation in OPERATIONS.values()} <= schemas.keys()
    text = msgspec.json.encode(schemas).decode()
    assert "extractor" not in text
    for name in set(text.split("#/components/schemas/")[1:]):
        assert name.partition('"')[0] in schemas


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_returns_from_its_problem_document(error: AgentMemoryLogError) -> None:
    twin = error_of(over_the_wire(problem_of(error)))
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)


def test_an_unknown_problem_is_no_error() -> None:
    assert error_of({"code": "out_of_coffee", "detail": "x"}) is None
    assert error_of({"code": "version_conflict", "detail": "x", "expected": 1}) is None
