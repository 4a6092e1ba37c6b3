"""Tests of the values that tools hand back: the stored text of each type, refused values, and errors of the library."""

from __future__ import annotations

import copy
import dataclasses
import enum
import json
import uuid
from collections.abc import Generator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from pydantic import BaseModel

from agent_memory_log import Reader, SyncStore, ToolCall, ToolResult, decode_event, open_store, open_sync_store
from agent_memory_log.errors import (
    AgentMemoryLogError,
    DecodeError,
    InvalidEvent,
    StoreUnavailable,
    ToolFailed,
)
from agent_memory_log.recording import RunRecorder, SyncRunRecorder
from agent_memory_log.transcript import build
from agent_memory_log.transcript.providers import repair, validate
from tests.strategies import json_values

UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")
NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: float
    tags: frozenset[str] = frozenset()
    inner: Any = None


class Model(BaseModel):
    when: datetime
    points: list[Point]


class Wire(msgspec.Struct, rename="camel", omit_defaults=True):
    order_id: Decimal
    left_out: int = 0
    inner: Any = None


class Pair(NamedTuple):
    left: int
    right: uuid.UUID


@pytest.fixture
def store() -> Generator[SyncStore]:
    with open_sync_store("memory:") as store:
        yield store


def stored(store: SyncStore, value: object, **arguments: Any) -> str:
    with SyncRunRecorder(store, "a", "r", **arguments) as recorder, recorder.tool_call("f") as call:
        call.result(value)
    return decode_event(store.load_run("a", "r").log[-1], ToolResult).result_json


VALUES: list[tuple[object, str]] = [
    (Colour.RED, '"red"'),
    (Level.HIGH, "3"),
    (NOON, '"2026-11-24T12:00:00Z"'),
    (date(2026, 11, 24), '"2026-11-24"'),
    (timedelta(minutes=1), '"PT60S"'),
    (UUID, f'"{UUID}"'),
    (b"\x00\xff", '"AP8="'),
    (Decimal("1.10"), "1.10"),
    (Decimal("1E+400"), "1E+400"),
    (Decimal(2**70), str(2**70)),
    (2**70, str(2**70)),
    ({"b", "a"}, '["a","b"]'),
    ({1, "1"}, '["1",1]'),
    ((1, Pair(2, UUID)), f'[1,[2,"{UUID}"]]'),
    (Point(1.5, frozenset("ba"), {"z": 1, "a": Colour.RED}), '{"x":1.5,"tags":["a","b"],"inner":{"z":1,"a":"red"}}'),
    (
        Model(when=NOON, points=[Point(1)]),
        '{"when":"2026-11-24T12:00:00Z","points":[{"x":1.0,"tags":[],"inner":null}]}',
    ),
    (Wire(Decimal("0.10")), '{"orderId":0.10}'),
    (Wire(Decimal(1), inner=Point(2, inner={UUID})), f'{{"orderId":1,"inner":{{"x":2,"tags":[],"inner":["{UUID}"]}}}}'),
    ({Colour.RED: 1, UUID: 2}, f'{{"red":1,"{UUID}":2}}'),
]


@pytest.mark.parametrize(("value", "text"), VALUES, ids=[type(value).__name__ for value, _ in VALUES])
def test_common_types_are_stored(store: SyncStore, value: object, text: str) -> None:
    assert stored(store, value) == text
    assert stored(store, {"in": [value]}) == f'{{"in":[{text}]}}'


def test_attrs_classes_are_stored(store: SyncStore) -> None:
    attrs = pytest.importorskip("attrs")
    kind = attrs.make_class("Order", ["number", "when"])
    assert stored(store, [kind(7, NOON)]) == '[{"number":7,"when":"2026-11-24T12:00:00Z"}]'


def test_arguments_and_server_data_take_the_same_values(store: SyncStore) -> None:
    with SyncRunRecorder(store, "a", "r") as recorder, recorder.tool_call("f", Point(1)) as call:
        call.fail("no", server_data={"at": NOON})
    tool_call, result = (event.data for event in store.load_run("a", "r").log)
    assert isinstance(tool_call, ToolCall)
    assert tool_call.payload_json == '{"x":1,"tags":[],"inner":null}'
    assert isinstance(result, ToolResult)
    assert result.server_data == '{"at":"2026-11-24T12:00:00Z"}'


@given(json_values())
def test_decoded_values_can_be_handed_back(value: Any) -> None:
    text = json.dumps(value)
    call = ToolCall("c", "f", payload_json=text)
    with open_sync_store("memory:") as store:
        for exact in (False, True):
            decoded = call.input(exact_numbers=exact)
            handed = stored(store, [decoded])
            assert ToolResult("c", "f", result_json=handed).result(exact_numbers=exact) == [decoded]
            assert json.loads(handed) == [value]


def test_floats_by_default_are_plain_numbers() -> None:
    total: Any = ToolCall("c", "f", payload_json='{"price": 1.10, "n": 123456789012345678901}').input()
    assert (total["price"] * 2, type(total["price"]), total["n"]) == (2.2, float, 123456789012345678901)
    assert json.loads(json.dumps(total)) == total


def test_enc_hook_converts_the_rest(store: SyncStore) -> None:
    def hook(value: Any) -> object:
        if isinstance(value, np.ndarray):
            return value.tolist()
        if isinstance(value, complex):
            return Point(value.real, inner=value.imag)
        raise NotImplementedError("no such type")

    assert stored(store, {"a": np.array([1, 2])}, enc_hook=hook) == '{"a":[1,2]}'
    assert stored(store, Wire(Decimal(1), inner=1j), enc_hook=hook) == (
        '{"orderId":1,"inner":{"x":0.0,"tags":[],"inner":1.0}}'
    )
    with pytest.raises(InvalidEvent, match=r"result_json\.a is of type object, .*: no such type"):
        stored(store, {"a": object()}, enc_hook=hook)
    with pytest.raises(InvalidEvent, match="without an end"):
        stored(store, object(), enc_hook=copy.copy)


def _endless() -> Point:
    point = Point(1)
    point.inner = [point]
    return point


REFUSED: list[tuple[object, str]] = [
    (float("nan"), ""),
    (float("-inf"), ""),
    (Decimal("NaN"), ""),
    (Decimal("-Infinity"), ""),
    (Decimal("9" * 5000), ""),
    ({"items": [1, Point(float("nan"))]}, ".items[1].x"),
    (Model.model_construct(when=NOON, points=[Point(float("inf"))]), ".points[0].x"),
    (Wire(Decimal("sNaN")), ".orderId"),
    ({"a": object()}, ".a"),
    ({1: 2}, ""),
    ({UUID: 1, str(UUID): 2}, ""),
    (Point, ""),
    ({"a": "\ud800"}, ".a"),
]


@pytest.mark.parametrize(("value", "path"), REFUSED, ids=[str(index) for index in range(len(REFUSED))])
def test_a_value_that_is_not_json_is_refused_with_its_path(store: SyncStore, value: object, path: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        stored(store, value)
    assert caught.value.field == f"data.result_json{path}"


def test_an_endless_value_is_refused(store: SyncStore) -> None:
    with pytest.raises(InvalidEvent, match="nests deeper than 64 levels"):
        stored(store, _endless())


# Errors of the library.

LIBRARY_ERRORS: list[AgentMemoryLogError] = [
    InvalidEvent("x", field="data"),
    DecodeError("x"),
    StoreUnavailable("x"),
]


def _raise_inside(recorder: SyncRunRecorder, error: Exception) -> None:
    with recorder.tool_call("f", {"n": 1}, key="k") as call:
        call.result("set before the error")
        raise error


@pytest.mark.parametrize("error", LIBRARY_ERRORS, ids=[type(error).__name__ for error in LIBRARY_ERRORS])
@pytest.mark.parametrize("in_group", [False, True])
def test_a_library_error_leaves_the_call_open(error: AgentMemoryLogError, *, in_group: bool) -> None:
    raised: Exception = ExceptionGroup("tasks", [ValueError("y"), error]) if in_group else error
    with open_sync_store("memory:") as store:
        with SyncRunRecorder(store, "a", "r") as recorder, pytest.raises(type(raised)) as caught:
            _raise_inside(recorder, raised)
        assert caught.value is raised
        assert "still open" in raised.__notes__[-1]
        snapshot = store.load_run("a", "r")
        (left_open,) = Reader(snapshot).open_tool_calls()
        for provider in ("anthropic", "openai-chat"):
            assert validate(repair(build(snapshot, provider), provider).transcript, provider) == []
        with SyncRunRecorder(store, "a", "r") as recorder, recorder.tool_call("f", {"n": 1}, key="k") as call:
            assert (call.recorded, call.event) == (None, left_open)
            call.result("ok")
        assert not Reader(store.load_run("a", "r")).open_tool_calls()


def test_a_caught_library_error_and_a_replayed_failure_are_outcomes_of_the_tool(store: SyncStore) -> None:
    with SyncRunRecorder(store, "a", "r") as recorder:
        with recorder.tool_call("f", "{not json") as call:
            try:
                decode_event(call.event, ToolCall).input()
            except DecodeError as error:
                call.fail(str(error))
        with pytest.raises(ToolFailed), recorder.tool_call("f"):
            raise ToolFailed("no such order", tool_name="f", tool_call_id="c")
    results = [event.data for event in store.load_run("a", "r").log if isinstance(event.data, ToolResult)]
    assert "is not JSON" in results[0].error_message
    assert results[1].error_message == "no such order"


async def test_an_asynchronous_recorder_takes_the_same_hook() -> None:
    async with open_store("memory:") as store:
        async with RunRecorder(store, "a", "r", enc_hook=str) as recorder, recorder.tool_call("f") as call:
            call.result([1j])
        assert decode_event((await store.load_run("a", "r")).log[-1], ToolResult).result_json == '["1j"]'
