"""Tests the stored documents: exact fields, queries with pymongo alone, and values that round-trip."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast
from zlib import crc32

import bson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.database import Database

from agent_memory_log import (
    AgentMemoryLogError,
    AssistantMessage,
    Event,
    EventData,
    JsonValue,
    PlannerNote,
    RetryHint,
    Snapshot,
    SyncStore,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    VersionConflict,
    new_event,
    open_sync_store,
    register_payload,
)
from agent_memory_log.conformance.checks import check_exact, check_run, check_same
from agent_memory_log.conformance.samples import TIMES, VALUES, every_payload, rich_event
from agent_memory_log.errors import DecodeError, StoreCorrupt
from agent_memory_log.events.nested import Bounds, ToolTelemetry
from tests import strategies
from tests.mongo.server import GivenServer, MongoServer

Document = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FAR = "9999-12-31T23:59:59.123456Z"


@pytest.fixture(scope="module")
def uri(mongo_server: MongoServer | GivenServer) -> Generator[str]:
    """Return one database for all tests of this module. Each test has its own runs."""
    name = f"amlog_test_{uuid.uuid4().hex}"
    yield mongo_server.uri(name)
    if isinstance(mongo_server, GivenServer):  # a MongoServer deletes its own data
        with mongo_server.client() as client:
            client.drop_database(name)


@pytest.fixture(scope="module")
def store(uri: str) -> Generator[SyncStore]:
    with open_sync_store(uri) as opened:
        yield opened


@pytest.fixture(scope="module")
def database(uri: str) -> Generator[Database[Document]]:
    """Open the store's database with pymongo itself."""
    with MongoClient[Document](uri) as client:
        yield client.get_default_database()


@pytest.fixture
def run() -> str:
    return uuid.uuid4().hex


def _note(text: str = "n", **fields: Any) -> Event:
    return new_event(PlannerNote(note=text), **fields)


def _commits(database: Database[Document], run: str) -> list[Document]:
    return list(database["amlog_commits"].find({"run": run}).sort("s", 1))


def _stored(database: Database[Document], run: str) -> list[Document]:
    """Return the stored events of a run."""
    return [event for commit in _commits(database, run) for event in commit["events"]]


def _run(database: Database[Document], run: str) -> Document:
    """Return the document of a run."""
    (matches,) = database["amlog_runs"].find({"run": run})
    return matches


def _back(uri: str, run: str) -> Snapshot:
    """Load a run with a new handle."""
    with open_sync_store(uri) as fresh_store:
        return fresh_store.load_run("agent", run)


def _sum(document: Document, key: str, seq: int) -> int:
    value = crc32(bson.encode(document), crc32(bytes.fromhex(key)) + seq)
    return value - 2**32 if value >= 2**31 else value


def _own_sum(commit: Document) -> int:
    value = crc32(bson.encode({name: commit[name] for name in commit if name not in {"sums", "events", "t", "ts"}}))
    return value - 2**32 if value >= 2**31 else value


# Times.


def test_times_are_stored_as_dates_and_microseconds(
    store: SyncStore, database: Database[Document], uri: str, run: str
) -> None:
    times = [
        *TIMES.values(),
        datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(1899, 12, 31, 0, 0, 0, 1001, tzinfo=UTC),
    ]
    for number, time in enumerate(times):
        store.append_events("agent", run, _note(str(number), timestamp=time))
    stored = _stored(database, run)
    for event, time in zip(stored, times, strict=True):
        date = event["timestamp"].replace(tzinfo=UTC)
        assert date.microsecond % 1000 == 0
        beyond = event.get("us", 0)
        assert 0 <= beyond < 1000
        assert ("us" in event) == bool(beyond)
        assert (date - EPOCH) // MICROSECOND + beyond == (time - EPOCH) // MICROSECOND
    assert [event.timestamp for event in _back(uri, run).log] == times


def test_dates_can_be_queried(store: SyncStore, database: Database[Document], run: str) -> None:
    for year in (1, 1969, 1970, 2026, 9999):
        store.append_events("agent", run, _note(str(year), timestamp=datetime(year, 7, 1, tzinfo=UTC)))
    between = {"$gte": datetime(1969, 1, 1, tzinfo=UTC), "$lt": datetime(2026, 12, 1, tzinfo=UTC)}
    query = {"run": run, "events": {"$elemMatch": {"timestamp": between}}}
    matches = database["amlog_commits"].find(query).sort("s", 1)
    assert [commit["events"][0]["data"]["note"] for commit in matches] == ["1969", "1970", "2026"]


# Documents as a whole.


def test_commit_and_run_documents_have_exactly_these_fields(
    store: SyncStore, database: Database[Document], run: str
) -> None:
    at = datetime(2026, 5, 1, 12, 30, 0, 123456, tzinfo=UTC)
    meta: dict[str, JsonValue] = {"session_id": "s-1", "expires_at": FAR}
    store.append_events(
        "agent",
        run,
        _note("one", timestamp=at, labels={"role": "planner"}, event_id="id-1"),
        new_event(ToolCall("tc", "find", payload_json='{"a":1}'), timestamp=at, event_id="id-2"),
        meta=meta,
    )
    store.append_events("agent", run, new_event(Thinking(), timestamp=at.replace(microsecond=7000), event_id="id-3"))
    (listed,) = store.list_runs("agent", limit=1).runs
    first, second = _commits(database, run)
    own = _run(database, run)
    created = (listed.created - EPOCH) // MICROSECOND
    end = (datetime(9999, 12, 31, 23, 59, 59, 123456, tzinfo=UTC) - EPOCH) // MICROSECOND
    date = datetime(9999, 12, 31, 23, 59, 59, 123000)  # noqa: DTZ001  # as the driver gives dates
    shared = {"k": own["_id"], "agent": "agent", "run": run, "c": created, "end": end, "expires_at": date}
    key = own["_id"].hex()
    noon = datetime(2026, 5, 1, 12, 30)  # noqa: DTZ001  # as above
    assert first == shared | {
        "_id": first["_id"],
        "sums": [_sum(event, key, seq) for seq, event in enumerate(first["events"], 1)] + [_own_sum(first)],
        "s": 1,
        "v": 2,
        "n": 2,
        "meta": meta,
        "t": [f"{key}:planner_note"],
        "ts": 1,
        "events": [
            {
                "id": "id-1",
                "type": "planner_note",
                "timestamp": noon.replace(microsecond=123000),
                "us": 456,
                "data": {"note": "one"},
                "labels": {"role": "planner"},
            },
            {
                "id": "id-2",
                "type": "tool_call",
                "timestamp": noon.replace(microsecond=123000),
                "us": 456,
                "data": {"tool_call_id": "tc", "tool_name": "find", "payload": '{"a":1}'},
            },
        ],
    }
    assert second == shared | {
        "_id": second["_id"],
        "sums": [_sum(second["events"][0], key, 3), _own_sum(second)],
        "s": 3,
        "v": 3,
        "n": 1,
        "events": [
            {
                "id": "id-3",
                "type": "thinking",
                "timestamp": noon.replace(microsecond=7000),
                "data": {"content_index": 0, "final": False},
            }
        ],
    }
    assert own == {
        "_id": first["k"],
        "agent": "agent",
        "run": run,
        "own": False,
        "g": 0,
        "c": created,
        "created": listed.created.replace(tzinfo=None, microsecond=listed.created.microsecond // 1000 * 1000),
        "order": own["order"],
        "sum": _sum({name: own[name] for name in sorted(own.keys() - {"_id", "sum", "ceiling"})}, key, 0),
        "meta": meta,
        "end": end,
        "expires_at": date,
        "ceiling": own["ceiling"],
    }
    assert own["order"].startswith(f"{created:019d}-")
    assert len(own["_id"]) == 16
    assert database["amlog_info"].find_one() == {"_id": "schema", "version": 3}


def test_deletion_leaves_only_ids_and_seqs(store: SyncStore, database: Database[Document], uri: str, run: str) -> None:
    for number in range(3):
        given_event = new_event(
            UserMessage(message=f"secret {number}"), labels={"secret": "secret"}, event_id=f"secret {number}"
        )
        store.append_events("agent", run, given_event, _note("secret"), meta={"secret": "secret"})
    store.delete_run("agent", run)
    commits = _commits(database, run)
    assert [(commit["s"], commit["v"], commit["n"]) for commit in commits] == [
        (1, 2, 0),
        (3, 4, 0),
        (5, 6, 0),
        (7, 6, 0),
    ]
    for commit in commits:
        assert commit["events"] == [{"id": commit["_id"]}]
        assert not {"t", "ts", "meta", "meta_json"} & commit.keys()
        assert ("sums" in commit) == (commit["s"] == 7)
    assert "secret" not in f"{commits} {_run(database, run)}"
    store.append_events("agent", run, _note("new"))
    assert [event.seq for event in _back(uri, run).log] == [7]
    newest = _commits(database, run)[-1]
    assert {name: newest[name] for name in "svngb"} == {"s": 8, "v": 7, "n": 1, "g": 1, "b": 6}


DAMAGE: dict[str, Document] = {
    "no n": {"$unset": {"n": 1}},
    "n text": {"$set": {"n": "2"}},
    "no v": {"$unset": {"v": 1}},
    "v a fraction": {"$set": {"v": 2.5}},
    "no events": {"$unset": {"events": 1}},
    "events text": {"$set": {"events": "ab"}},
    "events null": {"$set": {"events": [None, None]}},
    "no id": {"$unset": {"events.0.id": 1}},
    "an id that is none": {"$set": {"events.0.id": 5}},
    "a type that is none": {"$set": {"events.0.type": 5}},
    "labels that are none": {"$set": {"events.0.labels": 5}},
    "g text": {"$set": {"g": "x"}},
    "a meta that is none": {"$set": {"meta": 5}},
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("newest", [True, False], ids=["the newest", "an older one"])
def test_damaged_commit_raises_an_error_with_its_run(
    store: SyncStore, database: Database[Document], uri: str, run: str, damage: Document, newest: bool
) -> None:
    store.append_events("agent", run, _note(event_id="a"), _note(event_id="b"), meta={"k": 1})
    if not newest:
        store.append_events("agent", run, _note(event_id="c"))
    database["amlog_commits"].update_one({"run": run, "s": 1}, damage)
    calls: list[Callable[[SyncStore], object]] = [
        lambda handle: handle.load_run("agent", run),
        lambda handle: handle.load_run("agent", run, limit=2),
        lambda handle: handle.load_run("agent", run, types=["planner_note"]),
        lambda handle: handle.load_run("agent", run, types=["tool_call", "planner_note"]),
        lambda handle: handle.append_events("agent", run, _note(event_id="b"), expected_version=7),
        lambda handle: handle.redact_events("agent", run, [1]),
        lambda handle: next(handle.follow("agent", run)),
    ]
    failed = 0
    for call in calls:
        with open_sync_store(f"{uri}?timeoutMS=5000") as handle:
            try:
                call(handle)
            except (DecodeError, StoreCorrupt, VersionConflict) as error:
                assert run in str(error)  # noqa: PT017  # some calls do not read the damaged part
                failed += 1
    assert failed
    database["amlog_commits"].delete_many({"run": run})
    database["amlog_runs"].delete_many({"run": run})


def test_redaction_removes_the_content_from_the_collection(
    store: SyncStore, database: Database[Document], run: str
) -> None:
    batch = [_note(f"secret {number}", labels={"secret": "secret"}) for number in range(3)]
    store.append_events("agent", run, *batch, new_event(UserMessage(structured={"$secret": 2**70})))
    store.redact_events("agent", run, [2, 4], reason="asked")
    first, second, third, fourth, marker = _stored(database, run)
    assert ["secret" in str(event) for event in (first, second, third, fourth)] == [True, False, True, False]
    for event, given_type in ((second, "planner_note"), (fourth, "user_message")):
        assert event["type"] == "redacted"
        assert event["data"] == {"original_type": given_type, "reason": "asked"}
        assert not {"labels", "json"} & event.keys()
    assert second["id"] == batch[1].event_id
    assert marker["data"] == {"seqs": [2, 4], "reason": "asked"}
    matches = database["amlog_commits"].distinct("t", {"run": run})
    assert sorted(item.partition(":")[2] for item in matches) == [
        "planner_note",
        "redacted",
        "redaction",
        "user_message",
    ]


def test_runs_have_unique_keys(store: SyncStore, database: Database[Document]) -> None:
    pairs = [
        ("a", "bc"),
        ("ab", "c"),
        ("1", "1a"),
        ("11", "a"),
        ("a", "b"),
        ("b", "a"),
        ("A", "b"),
        ("\u00e9", "b"),
        ("e\u0301", "b"),
    ]
    for agent, run in pairs:
        store.append_events(agent, run, _note(f"{agent}/{run}"))
    for agent, run in pairs:
        assert [event.data for event in store.load_run(agent, run).log] == [PlannerNote(note=f"{agent}/{run}")]
    keys = {
        store_key
        for agent, run in pairs
        for store_key in database["amlog_commits"].distinct("k", {"agent": agent, "run": run})
    }
    assert len(keys) == len(pairs)


# Queries by path, with pymongo alone.

QUERIED_EVENTS = [
    new_event(
        UserMessage(message="Where is my order?", structured={"customer": {"tier": "gold", "orders": [7, 8]}}),
        labels={"role": "user", "channel-1": "chat é"},
    ),
    new_event(ToolCall("tc-1", "orders.find", payload_json='{"id":7}', queue="fast", expected_children_total=2)),
    new_event(
        ToolResult(
            "tc-1",
            "orders.find",
            parent_tool_call_id="tc-0",
            result_json='{"status":"late"}',
            server_data='{"host":"a"}',
            preview="late",
            bounds=Bounds(returned=1, total=40, truncated=True, next_cursor="n", refinement_hint="less"),
            duration_ns=2**40,
            telemetry=ToolTelemetry(duration_ms=3, tokens_used=41, model="m-1", extra={"cache": {"hit": True}}),
            retry_hint=RetryHint(reason="timeout", missing_fields=("id",), prior_input={"id": 7}),
            error_message="slow",
        )
    ),
    new_event(Thinking(text="hm", signature="sig", redacted=b"\xff\x00", content_index=2, final=True), event_id="e-4"),
    new_event(AssistantMessage(message="It is late.", structured=[{"type": "text"}, 2**53 + 1, 0.5, None])),
    new_event(UnknownPayload(type="acme.rating", data={"stars": 5, "by": {"name": "Ann"}})),
]


@pytest.fixture(scope="module")
def support_events(store: SyncStore) -> None:
    store.append_events("other", "run", *[_note(str(number)) for number in range(3)], meta={"session": {"id": "s-2"}})
    for event in QUERIED_EVENTS:
        store.append_events("support", "run", event, meta={"session": {"id": "s-1"}, "parent": None})


@pytest.mark.usefixtures("support_events")
@pytest.mark.parametrize(
    ("query", "seqs"),
    [
        ({"type": "tool_call"}, [2]),
        ({"type": {"$in": ["thinking", "acme.rating"]}}, [4, 6]),
        ({"id": "e-4"}, [4]),
        ({"data.message": {"$regex": "order"}}, [1]),
        ({"data.structured.customer.tier": "gold"}, [1]),
        ({"data.structured.customer.orders": 8}, [1]),
        ({"data.structured.customer.orders.0": 7}, [1]),
        ({"data.structured.type": "text"}, [5]),
        ({"data.structured": 2**53 + 1}, [5]),
        ({"data.structured": {"$gt": 0.4, "$lt": 0.6}}, [5]),
        ({"labels.role": "user"}, [1]),
        ({"labels.channel-1": "chat é"}, [1]),
        ({"labels": {"$exists": False}, "type": {"$ne": "planner_note"}}, [2, 3, 4, 5, 6]),
        ({"data.tool_name": "orders.find"}, [2, 3]),
        ({"data.parent_tool_call_id": "tc-0"}, [3]),
        ({"data.expected_children_total": 2}, [2]),
        ({"data.queue": "fast"}, [2]),
        ({"data.duration": {"$gt": 2**39}}, [3]),
        ({"data.bounds.Returned": 1, "data.bounds.Total": {"$gte": 40}, "data.bounds.Truncated": True}, [3]),
        ({"data.bounds.NextCursor": "n", "data.bounds.RefinementHint": "less"}, [3]),
        ({"data.telemetry.TokensUsed": {"$gt": 40}, "data.telemetry.Model": "m-1"}, [3]),
        ({"data.telemetry.Extra.cache.hit": True}, [3]),
        ({"data.retry_hint.Reason": "timeout", "data.retry_hint.MissingFields": "id"}, [3]),
        ({"data.retry_hint.PriorInput.id": 7}, [3]),
        ({"data.error_message": "slow", "data.preview": "late"}, [3]),
        ({"data.content_index": 2, "data.final": True, "data.redacted": "/wA="}, [4]),
        ({"data.signature": "sig", "data.text": "hm"}, [4]),
        ({"data.stars": {"$gte": 4}, "data.by.name": "Ann"}, [6]),
        ({"data.payload": '{"id":7}'}, [2]),
        ({"data.result_json": '{"status":"late"}', "data.server_data": '{"host":"a"}'}, [3]),
        ({"data.payload.id": 7}, []),
        ({"data.result_json.status": "late"}, []),
    ],
    ids=str,
)
def test_queries_find_fields_by_path(database: Database[Document], query: Document, seqs: list[int]) -> None:
    query_filter = {"agent": {"$in": ["support", "other"]}, "events": {"$elemMatch": query}}
    matches = database["amlog_commits"].find(query_filter).sort("s", 1)
    assert [(commit["agent"], commit["s"]) for commit in matches] == [("support", seq) for seq in seqs]


@pytest.mark.usefixtures("support_events")
def test_queries_find_runs_by_meta_and_events_by_run(database: Database[Document]) -> None:
    (matches,) = database["amlog_runs"].find({"meta.session.id": "s-1"})
    assert (matches["agent"], matches["run"]) == ("support", "run")
    assert database["amlog_runs"].count_documents({"agent": "support"}) == 1
    assert database["amlog_commits"].count_documents({"k": matches["_id"]}) == len(QUERIED_EVENTS)
    counted = database["amlog_commits"].aggregate(
        [
            {"$match": {"agent": "support"}},
            {"$unwind": "$events"},
            {"$match": {"events.data.tool_name": {"$exists": True}}},
            {
                "$group": {
                    "_id": "$events.data.tool_name",
                    "count": {"$sum": 1},
                    "ns": {"$sum": "$events.data.duration"},
                }
            },
        ]
    )
    assert list(counted) == [{"_id": "orders.find", "count": 2, "ns": 2**40}]


# Values that BSON or a query path does not support.

HOSTILE: dict[str, JsonValue] = {
    "$": {"$set": 1},
    "$ deep": [{"a": [{"b": {"$where": "1"}}]}],
    "$ first of several": {"$ref": "c", "$id": 1, "$db": "d"},
    ".": {"a.b": 1},
    ". alone": {".": {".": 1}},
    "empty key": {"": 1},
    "NUL key": {"a\x00b": 1},
    "2**63": 2**63,
    "-2**63-1": [-(2**63) - 1],
    "10**400": {"n": [10**400, 1]},
}
HELD: dict[str, JsonValue] = {
    "2**63-1": [2**63 - 1, -(2**63), 2**31, -(2**31) - 1],
    "$ within a key": {"a$": 1, "_id": {"_id": 1}},
    "NUL in text": {"a": "\x00"},
    "zeros": [0, 0.0, -0.0, False, None, ""],
    "numbers as keys": {"0": 1, "1": {"0": 2}},
    "names of ours": {"events": [], "id": "x", "json": "y", "us": 1, "labels": {}, "timestamp": None},
}


def _everywhere(value: JsonValue) -> list[Event]:
    """Return events with the value in every field that accepts any value."""
    as_map: dict[str, JsonValue] = {"before": [1], "value": value, "after": {"x": 2**40}}
    return [
        new_event(UserMessage(message="m", structured=value)),
        new_event(ToolCall("tc", "t", payload_json='{"a":1}', structured=value)),
        new_event(ToolResult("tc", "t", telemetry=ToolTelemetry(extra=as_map), structured={"kept": 1})),
        new_event(ToolResult("tc", "t", retry_hint=RetryHint(prior_input=as_map), preview="p")),
        new_event(RetryHint(reason="r", example_input=as_map, prior_input={"kept": 1})),
        new_event(UnknownPayload(type="later", data=as_map)),
    ]


_FALLS_BACK = ("structured", "structured", "telemetry", "retry_hint", "ExampleInput", None)


@pytest.mark.parametrize("name", HOSTILE)
def test_values_unsupported_by_bson_are_json_text(
    store: SyncStore, database: Database[Document], uri: str, name: str, run: str
) -> None:
    events = _everywhere(HOSTILE[name])
    store.append_events("agent", run, *events)
    for stored, field in zip(_stored(database, run), _FALLS_BACK, strict=True):
        assert isinstance(stored["json"], str)
        assert field not in stored["data"]
    payloads = [event["data"] for event in _stored(database, run)]
    assert payloads[0] == {"message": "m"}
    assert payloads[1] == {"tool_call_id": "tc", "tool_name": "t", "payload": '{"a":1}'}
    assert payloads[2]["structured"] == payloads[4]["PriorInput"] == {"kept": 1}
    assert payloads[3]["preview"] == "p"
    assert payloads[5] == {}
    loaded = _back(uri, run)
    check_run(loaded, events)
    assert isinstance(loaded.log[5].data, UnknownPayload)
    assert list(loaded.log[5].data.data) == ["before", "value", "after"]


@pytest.mark.parametrize("value", [*HELD.values(), *VALUES.values()], ids=[*HELD, *VALUES])
def test_values_supported_by_bson_round_trip(store: SyncStore, uri: str, value: JsonValue, run: str) -> None:
    deep = value == VALUES["as deep as it may be"]
    events = [*_everywhere(None if deep else value), new_event(UserMessage(structured=value))]
    store.append_events("agent", run, *events)
    with open_sync_store(uri) as fresh_store:
        check_run(fresh_store.load_run("agent", run), events)
        check_run(fresh_store.load_run("agent", run, types=[event.type for event in events]), events)


@pytest.mark.parametrize("name", HELD)
def test_values_supported_by_bson_are_not_json_text(
    store: SyncStore, database: Database[Document], name: str, run: str
) -> None:
    store.append_events("agent", run, *_everywhere(HELD[name]))
    assert not any("json" in event for event in _stored(database, run))


def _types(value: object) -> set[str]:
    """Return the type names of a JSON value and of all values in it."""
    own = type(value).__name__
    inner: list[object] = []
    if isinstance(value, dict):
        inner = list(cast("dict[str, object]", value).values())
    elif isinstance(value, list):
        inner = cast("list[object]", value)
    return {own}.union(*map(_types, inner))


def test_integers_are_loaded_as_plain_int(store: SyncStore, uri: str, run: str) -> None:
    large: list[JsonValue] = [2**31, -(2**40), 2**63 - 1]
    store.append_events("agent", run, *_everywhere([*large, {"n": 2**33}]), meta={"n": large, "m": {"n": 2**33}})
    with open_sync_store(uri) as fresh_store:
        snapshot = fresh_store.load_run("agent", run)
        metas = [fresh_store.list_runs("agent", limit=1).runs[0].meta, snapshot.meta]
    assert _types(metas) == {"list", "dict", "int"}
    for event in snapshot.log:
        assert _types(event.data.to_map()) <= {"list", "dict", "int", "str", "bool", "NoneType"}


NAMES = ("", "$set", "a.b", ".", "\x00", "$", "_id", "type", "9", "events")
"""The field names of a custom payload."""


def test_keys_of_an_unknown_payload_keep_their_order(store: SyncStore, uri: str, run: str) -> None:
    orders = [
        *itertools.islice(itertools.permutations(NAMES), 0, 3_628_800, 60_480),
        ("z", "a"),
        ("$z", "a"),
        ("a", "$z"),
    ]
    events = [
        new_event(UnknownPayload(type="later", data={key: number for number, key in enumerate(order)}))
        for order in orders
    ]
    store.append_events("agent", run, *events)
    loaded = list(_back(uri, run).log)
    assert loaded == list(store.load_run("agent", run).log)
    for event, order in zip(loaded, orders, strict=True):
        assert isinstance(event.data, UnknownPayload)
        assert list(event.data.data.items()) == [(key, number) for number, key in enumerate(order)]


@register_payload
class OddlyNamed(
    EventData,
    frozen=True,
    rename={"dollar": "$set", "dotted": "a.b", "nothing": "", "own": "_id", "plain": "plain"}.get,
):
    """A payload with field names that BSON or a query path does not support."""

    event_type: ClassVar[str] = "$odd.ly"
    dollar: str = ""
    dotted: int = 0
    nothing: tuple[int, ...] = ()
    own: str = ""
    plain: str = ""


def test_registered_payload_with_unusual_names_round_trips(
    store: SyncStore, database: Database[Document], uri: str, run: str
) -> None:
    payloads = [
        OddlyNamed(dollar="1", dotted=2**70, nothing=(3, 2**64), own="4", plain="5"),
        OddlyNamed(plain="alone"),
        OddlyNamed(own="and", plain="two"),
        OddlyNamed(dollar="1"),
    ]
    store.append_events("agent", run, *map(new_event, payloads))
    assert [event.data for event in _back(uri, run).log] == payloads
    assert [event.data for event in store.load_run("agent", run, types=["$odd.ly"]).log] == payloads
    assert database["amlog_commits"].count_documents({"run": run, "events.data.plain": "alone"}) == 1


@pytest.mark.parametrize(
    "labels",
    [{"$set": "v"}, {"a.b": "v"}, {"": "v"}, {"\x00": "v"}, {"a": "1", "$b": "2", "c": "3"}, {"_id": "v", "a": "\x00"}],
    ids=str,
)
def test_labels_round_trip(
    store: SyncStore, database: Database[Document], uri: str, labels: dict[str, str], run: str
) -> None:
    store.append_events("agent", run, _note(labels=labels))
    (event,) = _back(uri, run).log
    assert list(event.labels.items()) == list(labels.items())
    (stored,) = _stored(database, run)
    assert ("json" in stored) == ("_id" not in labels)
    assert ("labels" in stored) == ("_id" in labels)
    assert stored["data"] == {"note": "n"}, "what has odd labels can be sought by its data"


@pytest.mark.parametrize("name", [*HOSTILE, "$ key", *HELD])
def test_meta_round_trips(store: SyncStore, database: Database[Document], uri: str, name: str, run: str) -> None:
    odd: dict[str, JsonValue] = {"$ key": 1}
    meta: dict[str, JsonValue] = odd if name == "$ key" else {"z": 1, "value": {**HOSTILE, **HELD}[name], "a": [2**40]}
    store.append_events("agent", run, _note(), meta=meta)
    with open_sync_store(uri) as fresh_store:
        for matches in (fresh_store.load_run("agent", run).meta, fresh_store.list_runs("agent", limit=1).runs[0].meta):
            check_exact(matches, meta, "meta")
            assert list(matches) == list(meta)
    for document in (_commits(database, run)[0], _run(database, run)):
        assert ("meta" in document, "meta_json" in document) == (name in HELD, name not in HELD)


def test_every_payload_loads_by_seq_and_by_type(store: SyncStore, uri: str, run: str) -> None:
    events = [*every_payload(), rich_event()]
    store.append_events("agent", run, *events)
    with open_sync_store(uri) as fresh_store:
        snapshot = fresh_store.load_run("agent", run)
        check_run(snapshot, events)
        for seq, event in enumerate(snapshot.log, 1):
            (alone,) = fresh_store.load_run("agent", run, after=seq - 1, limit=1).log
            assert alone == event
            of_type = fresh_store.load_run("agent", run, types=[event.type]).log
            assert [item for item in of_type if item.seq == seq] == [event]


# Anything that may be stored.


def _outcome(store: SyncStore, run: str, batch: list[Event], meta: Mapping[str, JsonValue] | None) -> object:
    try:
        result = store.append_events("agent", run, *batch, meta=meta)
    except AgentMemoryLogError as error:
        return type(error)
    return result.inserted, result.version, result.events


@given(st.lists(strategies.events(), min_size=1, max_size=3), st.none() | strategies.json_maps())
@example(
    [new_event(UnknownPayload(type="$x.\x00", data={"": {"": 2**64}, "$a": [], "a.b": {}}), event_id="$id.\x00")], {}
)
def test_mongodb_stores_the_same_as_the_memory_backend(
    store: SyncStore, batch: list[Event], meta: Mapping[str, JsonValue] | None
) -> None:
    run = uuid.uuid4().hex
    events_by_name = [
        Event(event.type, event.timestamp, event.data, event.labels, event.event_id or f"id {number}")
        for number, event in enumerate(batch)
    ]
    with open_sync_store("memory:") as reference:
        assert _outcome(store, run, events_by_name, meta) == _outcome(reference, run, events_by_name, meta)
        assert _outcome(store, run, events_by_name, meta) == _outcome(reference, run, events_by_name, meta), (
            "the same again"
        )
        check_same(store.load_run("agent", run), reference.load_run("agent", run))
        types = [event.type for event in events_by_name[:1]]
        check_same(store.load_run("agent", run, types=types), reference.load_run("agent", run, types=types))
