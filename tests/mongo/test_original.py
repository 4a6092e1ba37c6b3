"""The Go original's collection, as a store: read as it was meant, listed, followed, copied, and never changed.

``golden/original-mongo.jsonl`` has events that the original itself wrote (v1.0.3, its own code run on made-up values):
``bson`` as its driver stores them, as extended JSON, and ``json`` as its JSON encoder writes the same ones.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId, json_util
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import AsyncMongoClient, MongoClient
from pymongo.collection import Collection
from pymongo.errors import PyMongoError
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from agent_memory_log import (
    CursorOutOfRange,
    DecodeError,
    Event,
    InvalidArgument,
    InvalidEvent,
    PlannerNote,
    RunDeleted,
    RunInfo,
    SchemaTooNew,
    Store,
    StoreClosed,
    StoreUnavailable,
    Thinking,
    ToolCall,
    UnknownPayload,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.conformance.harness import Handles, OpenHandle
from agent_memory_log.transfer.copying import CopiedRun, copy_run, copy_store
from agent_memory_log_mongo import original_reads
from agent_memory_log_mongo.original import OriginalStore, SyncOriginalStore
from agent_memory_log_mongo.replies import BYTES
from tests.amlog import Amlog
from tests.mongo.ports import HOST, port_of, reserve_port
from tests.mongo.server import GivenServer, MongoServer
from tests.waiting import PATIENCE

GOLDEN = Path(__file__).parents[1] / "golden" / "original-mongo.jsonl"
TIME = datetime(2026, 3, 1, 9, 30, 0, 125_000, tzinfo=UTC)

Documents = Collection[dict[str, Any]]
Opened = Callable[[], Awaitable[Store]]


def golden() -> list[dict[str, Any]]:
    with GOLDEN.open(encoding="utf-8") as lines:
        return [json_util.loads(line) for line in lines]


def note(number: int, **more: object) -> dict[str, Any]:
    data: dict[str, Any] = {"note": f"note {number}"}
    return {"type": "planner_note", "timestamp": TIME + timedelta(seconds=number), "data": data, **more}


def run_document(run: str, events: object, agent: object = "a", **more: object) -> dict[str, Any]:
    return {"agent_id": agent, "run_id": run, "events": events, "updated_at": TIME, **more}


@pytest.fixture
def collection(mongo_server: MongoServer | GivenServer, mongo_database: str) -> Documents:
    """The collection as the original makes it."""
    made: Documents = mongo_server.client()[mongo_database]["agent_memory"]
    made.create_index([("agent_id", 1), ("run_id", 1)], unique=True)
    return made


@pytest.fixture(autouse=True)
def close_collection(collection: Documents) -> Any:
    yield
    collection.database.client.close()


@pytest.fixture
def url(mongo_server: MongoServer | GivenServer, mongo_database: str) -> str:
    return mongo_server.uri(mongo_database, layout="original")


@pytest.fixture(params=["async", "sync", "motor"])
async def opened(
    request: pytest.FixtureRequest, url: str, mongo_server: MongoServer | GivenServer, mongo_database: str
) -> AsyncGenerator[Handles]:
    clients: list[AsyncIOMotorClient[dict[str, Any]]] = []

    async def with_motor() -> OriginalStore:
        clients.append(AsyncIOMotorClient(mongo_server.uri()))
        return await OriginalStore.open(clients[-1], mongo_database)

    ways: dict[str, OpenHandle] = {
        "async": lambda: open_store(url),
        "sync": lambda: open_sync_store(url),
        "motor": with_motor,
    }
    handles = Handles(ways[request.param])
    yield handles
    await handles.close()
    for client in clients:
        client.close()


@pytest.fixture
async def store(url: str) -> AsyncGenerator[Store]:
    async with open_store(url) as store:
        yield store


async def copied(source: Store, target: Store) -> list[CopiedRun]:
    return [one async for one in copy_store(source, target)]


# What the original wrote.


async def test_what_the_original_wrote_is_read_as_it_was_meant(opened: Handles, collection: Documents) -> None:
    rows = golden()
    assert {row["bson"]["type"] for row in rows} == {
        "user_message",
        "assistant_message",
        "planner_note",
        "thinking",
        "tool_call",
        "tool_result",
    }
    collection.insert_one(run_document("r", [row["bson"] for row in rows]))
    snapshot = await (await opened()).load_run("a", "r")
    assert (snapshot.version, snapshot.last_seq, snapshot.first_seq) == (len(rows), len(rows), 1)
    for seq, (event, row) in enumerate(zip(snapshot.log, rows, strict=True), 1):
        meant = Event.from_map(row["json"])
        assert (event.seq, event.type, event.data, event.labels) == (seq, meant.type, meant.data, meant.labels)
        # It keeps milliseconds in MongoDB, and nanoseconds in JSON.
        assert event.timestamp == meant.timestamp.replace(microsecond=meant.timestamp.microsecond // 1000 * 1000)
        assert event.timestamp.tzinfo is UTC
    assert len({event.event_id for event in snapshot.log}) == len(rows)


async def test_every_read_answers_as_a_copy_does(store: Store, collection: Documents) -> None:
    events = [row["bson"] for row in golden()][:8]
    collection.insert_one(run_document("r", events, meta={"session_id": "s", "n": Int64(2**40)}))
    async with open_store("memory:") as target:
        (result,) = await copied(store, target)
        assert not result.problem
        types: list[list[str] | None] = [None, [], ["tool_result"], ["tool_result", "user_message"], ["none.such"]]
        for after, chosen, limit in itertools.product(range(9), types, [None, 1, 2, 8, 9]):
            ours = await store.load_run("a", "r", after=after, types=chosen, limit=limit)
            theirs = await target.load_run("a", "r", after=after, types=chosen, limit=limit)
            assert ours == theirs, (after, chosen, limit)
        async with open_store("memory:") as empty:
            assert await store.load_run("a", "none such") == await empty.load_run("a", "none such")


async def test_pages_extend_to_the_whole(opened: Handles, collection: Documents) -> None:
    collection.insert_one(run_document("r", [note(n) for n in range(10)]))
    store = await opened()
    snapshot = await store.load_run("a", "r", limit=4)
    while snapshot.last_seq < snapshot.version:
        snapshot = snapshot.extend(await store.load_run("a", "r", after=snapshot.last_seq, limit=4))
    assert snapshot == await store.load_run("a", "r")


async def test_a_snapshot_is_its_owners(store: Store, collection: Documents) -> None:
    collection.insert_one(run_document("r", [note(1)], meta={"k": {"l": [1]}}))
    snapshot = await store.load_run("a", "r")
    cast("Any", snapshot.meta)["k"]["l"].append(2)
    assert (await store.load_run("a", "r")).meta == {"k": {"l": [1]}}


async def test_arguments_that_mean_nothing_are_refused(opened: Handles, collection: Documents) -> None:
    collection.insert_one(run_document("r", [note(1)]))
    store = await opened()
    with pytest.raises(CursorOutOfRange, match="a/r has 1 events; there is nothing after seq 2"):
        await store.load_run("a", "r", after=2)
    with pytest.raises(CursorOutOfRange):
        await store.load_run("a", "r", after=2**70, types=["planner_note"], limit=1)
    with pytest.raises(CursorOutOfRange):
        await store.load_run("a", "none such", after=1)
    for options in ({"after": -1}, {"limit": 0}, {"types": "planner_note"}):
        with pytest.raises(InvalidArgument):
            await store.load_run("a", "r", **cast("Any", options))
    for agent in ("", "x" * 513, {"$gt": ""}, None):
        with pytest.raises(InvalidEvent):
            await store.load_run(cast("Any", agent), "r")
    assert (await store.load_run("a", "r", limit=2**70)).version == 1


async def test_ids_are_text_and_nothing_else(store: Store, collection: Documents) -> None:
    names = ["$ne", "{'$gt': ''}", "a.b", "..", "/", "\0", "é😀", " "]
    collection.insert_many([run_document(name, [note(1)], agent=name) for name in names])
    for name in names:
        assert (await store.load_run(name, name)).version == 1
        assert [info.run for info in (await store.list_runs(name)).runs] == [name]
    assert (await store.load_run("$ne", "é😀")).version == 0


# What BSON has and JSON has not.


async def test_values_of_bson_are_as_the_original_writes_them_in_json(store: Store, collection: Documents) -> None:
    held = {
        "when": TIME,
        "bytes": [b"\xff\0", Binary(b"x", 128)],
        "id": ObjectId("0123456789abcdef01234567"),
        "long": Int64(2**53 + 1),
        "real": 1.0,
        "none": None,
    }
    plain = {
        "when": "2026-03-01T09:30:00.125000Z",
        "bytes": ["/wA=", "eA=="],
        "id": "0123456789abcdef01234567",
        "long": 2**53 + 1,
        "real": 1.0,
        "none": None,
    }
    names = {"tool_call_id": "t", "tool_name": "n"}
    events = [
        {"type": "user_message", "timestamp": TIME, "data": {"structured": held}},
        {"type": "ours.own", "timestamp": TIME, "data": {**held, "raw": b"\xff\0"}},
        {"type": "user_message", "timestamp": TIME, "data": {"structured": b"\xff\0"}},
        {
            "type": "tool_call",
            "timestamp": TIME,
            "data": {"tool_call_id": "t", "tool_name": "n", "payload": b'{"q":1}'},
        },
        {"type": "thinking", "timestamp": TIME, "data": {"redacted": b"\xff\0"}},
        {"type": "tool_call", "timestamp": TIME, "data": {**names, "payload": held}},
    ]
    collection.insert_one(run_document("r", events, meta=held))
    snapshot = await store.load_run("a", "r")
    message, own, whole, call, thought, odd = (event.data for event in snapshot.log)
    assert isinstance(message, UserMessage)
    assert message.structured == plain
    assert isinstance(own, UnknownPayload)
    assert own.data == {**plain, "raw": "/wA="}
    assert whole == UserMessage(structured="/wA=")
    assert call == ToolCall("t", "n", payload_json='{"q":1}')
    assert thought == Thinking(redacted=b"\xff\0")
    assert isinstance(odd, ToolCall)
    assert odd.input() == plain
    assert snapshot.meta == plain
    assert type(cast("Any", snapshot.meta)["long"]) is int
    assert [info.meta for info in (await store.list_runs()).runs] == [plain]


# Documents that the original did not write, or should not have.

HOSTILE: list[tuple[str, object, str]] = [
    ("a number", 5, "an event must be a map, found int 5"),
    ("null", None, "an event must be a map, found null"),
    ("a list", [note(1)], "an event must be a map, found list"),
    ("empty", {}, "type must be non-empty text"),
    ("no type", {"timestamp": TIME, "data": {}}, "type must be non-empty text"),
    ("type a number", {**note(1), "type": 5}, "type must be non-empty text, found int 5"),
    ("no data", {"type": "planner_note", "timestamp": TIME}, "planner_note: data is absent"),
    ("data null", {**note(1), "data": None}, "planner_note: data is null"),
    ("data a list", {**note(1), "data": [1]}, "planner_note: data must be a map, found list"),
    ("no timestamp", {"type": "planner_note", "data": {"note": "n"}}, "timestamp must be"),
    ("timestamp a number", {**note(1), "timestamp": 5}, "timestamp must be RFC 3339 text, found int 5"),
    ("labels a list", {**note(1), "labels": ["x"]}, "labels must be a map"),
    ("labels to numbers", {**note(1), "labels": {"k": 1}}, "labels must be text to text"),
    ("a field of another type", {**note(1), "data": {"note": ["x"]}}, "field 'note' must be text"),
    ("a required field missing", {"type": "tool_call", "timestamp": TIME, "data": {}}, "'tool_call_id' is missing"),
    (
        "not a number",
        {"type": "user_message", "timestamp": TIME, "data": {"structured": {"x": [float("nan")]}}},
        "structured",
    ),
    ("a decimal", {"type": "own", "timestamp": TIME, "data": {"x": Decimal128("1.10")}}, "Decimal128"),
    ("bytes that are no text", {**note(1), "data": {"note": b"\xff"}}, "field 'note' must be text"),
]


@pytest.mark.parametrize(("item", "found"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
async def test_an_event_that_cannot_be_read_is_named_and_hides_no_other(
    store: Store, collection: Documents, item: object, found: str
) -> None:
    collection.insert_many([run_document("r", [note(1), item, note(3)]), run_document("whole", [note(1)])])
    with pytest.raises(DecodeError) as caught:
        await store.load_run("a", "r")
    assert str(caught.value).startswith("a/r: event 2 cannot be read: ")
    assert found in str(caught.value)
    for after in (0, 2):
        (event,) = (await store.load_run("a", "r", after=after, limit=1)).log
        assert event.data == PlannerNote(f"note {after + 1}")
    assert (await store.load_run("a", "r", types=())).version == 3
    assert [info.version for info in (await store.list_runs()).runs] == [1, 3]
    async with open_store("memory:") as target:
        whole, damaged = sorted(await copied(store, target), key=lambda one: one.run, reverse=True)
        assert (whole.problem, whole.copied) == ("", 1)
        assert (damaged.seq, damaged.copied) == (2, 1)
        assert found in damaged.problem


HELD_BY_A_REAL_SERVER: list[tuple[str, Any, bytes, bytes, str]] = [
    ("text cut within a character", "é", b"\xc3\xa9", b"\xc3\x28", "utf-8"),
    ("text that is bytes", "XX", b"XX", b"\xff\xfe", "utf-8"),
]


@pytest.mark.parametrize("row", HELD_BY_A_REAL_SERVER, ids=[row[0] for row in HELD_BY_A_REAL_SERVER])
@pytest.mark.parametrize("field", ["type", "data", "labels"])
def test_text_that_is_not_utf_8_is_an_event_that_cannot_be_read(
    field: str, row: tuple[str, Any, bytes, bytes, str]
) -> None:
    """Go's strings are bytes, and so is what its driver writes; the server of the tests would refuse it."""
    _, text, before, after, found = row
    changed = {"type": {"type": text}, "data": {"data": {"note": text}}, "labels": {"labels": {"k": text}}}[field]
    encoded = bson.encode(note(2, **changed)).replace(before, after)
    items = [RawBSONDocument(one, BYTES) for one in (bson.encode(note(1)), encoded)]
    run = original_reads.FoundRun("a", "r", 2, items)
    events = run.events(0)
    assert next(events).data == PlannerNote("note 1")
    with pytest.raises(DecodeError, match="a/r: event 2 cannot be read: ") as caught:
        next(events)
    assert found in str(caught.value)


def test_an_id_that_is_not_utf_8_names_no_run() -> None:
    encoded = bson.encode({"_id": 1, **run_document("XX", [note(1)]), "count": 1}).replace(b"XX", b"\xff\xfe")
    source = original_reads.Source("agent_memory", "majority")
    with pytest.raises(DecodeError, match="the _id int 1 names no run: run holds a lone surrogate"):
        original_reads._info(source, cast("Any", RawBSONDocument(encoded, BYTES)))


@pytest.mark.parametrize("milliseconds", [-(2**62), 2**62, 253_402_300_800_000])
def test_a_date_of_no_year_is_an_event_that_cannot_be_read(milliseconds: int) -> None:
    item = RawBSONDocument(bson.encode(note(2, timestamp=DatetimeMS(milliseconds))), BYTES)
    with pytest.raises(DecodeError, match="a/r: event 7 cannot be read: planner_note: timestamp must be"):
        list(original_reads.FoundRun("a", "r", 7, [item]).events(6))


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ("text", "an event must be a map, found str 'text'"),
        (5, "an event must be a map, found int 5"),
        ({"0": note(1)}, "type must be non-empty text"),
        (TIME, "an event must be a map, found datetime"),
    ],
)
async def test_events_that_are_no_list_are_one_that_cannot_be_read(
    opened: Handles, collection: Documents, events: object, found: str
) -> None:
    collection.insert_one(run_document("r", events))
    store = await opened()
    assert [info.version for info in (await store.list_runs()).runs] == [1]
    with pytest.raises(DecodeError, match="a/r: event 1 cannot be read: ") as caught:
        await store.load_run("a", "r")
    assert found in str(caught.value)
    assert (await store.load_run("a", "r", types=())).version == 1
    assert not (await store.load_run("a", "r", after=1)).log


async def test_a_run_without_events_is_none(opened: Handles, collection: Documents) -> None:
    collection.insert_many([run_document("empty", []), run_document("null", None), {"agent_id": "a", "run_id": "x"}])
    store = await opened()
    assert not (await store.list_runs()).runs
    for run in ("empty", "null", "x"):
        assert (await store.load_run("a", run)).version == 0


ODD_METAS: list[tuple[object, str]] = [
    (5, "must be a map, found int 5"),
    (["k"], "must be a map, found list"),
    ({"k": [Decimal128("1")]}, ".k[0] is of type Decimal128"),
]


@pytest.mark.parametrize(("meta", "found"), ODD_METAS)
async def test_a_meta_that_cannot_be_read(store: Store, collection: Documents, meta: object, found: str) -> None:
    collection.insert_one(run_document("r", [note(1)], meta=meta))
    with pytest.raises(DecodeError, match="a/r: the run's meta") as caught:
        await store.load_run("a", "r")
    assert found in str(caught.value)
    assert [info.meta for info in (await store.list_runs()).runs] == [{}]


@pytest.mark.parametrize(
    ("agent", "run", "found"),
    [
        (5, "r", "agent must be non-empty text of at most 512 characters, found int 5"),
        ("", "r", "agent must be"),
        ("x" * 513, "r", "agent must be"),
        ({"$gt": ""}, "r", "agent must be"),
        ("b", None, "run must be"),
        ("b", ["r"], "run must be"),
    ],
)
async def test_a_document_that_names_no_run_is_not_passed_over(
    store: Store, collection: Documents, agent: object, run: Any, found: str
) -> None:
    collection.insert_many([run_document("r", [note(1)]), {**run_document(run, [note(1)], agent), "_id": "odd"}])
    with pytest.raises(DecodeError, match="agent_memory: the document with the _id str 'odd' names no run: ") as caught:
        await store.list_runs()
    assert found in str(caught.value)
    assert [info.run for info in (await store.list_runs("a")).runs] == ["r"]


async def test_two_documents_for_one_run_are_an_error(store: Store, collection: Documents) -> None:
    collection.drop_index("agent_id_1_run_id_1")
    collection.insert_many([run_document("r", [note(1)]), run_document("r", [note(1), note(2)])])
    with pytest.raises(DecodeError, match="a/r: the collection agent_memory has several documents of this run"):
        await store.load_run("a", "r")


# Size.


async def test_a_document_near_the_limit(opened: Handles, collection: Documents) -> None:
    text = "x" * 1000
    one: dict[str, Any] = {"type": "planner_note", "timestamp": TIME, "data": {"note": text}}
    count = (16 * 1024 * 1024 - 1000) // (len(bson.encode(one)) + 8)
    document = run_document("r", [one] * count)
    assert 16 * 1024 * 1024 - 100_000 < len(bson.encode(document)) <= 16 * 1024 * 1024
    collection.insert_one(document)
    store = await opened()
    snapshot = await store.load_run("a", "r")
    assert (snapshot.version, len(snapshot.log)) == (count, count)
    (last,) = (await store.load_run("a", "r", after=count - 1)).log
    assert last == snapshot.log[-1]
    assert [info.version for info in (await store.list_runs()).runs] == [count]
    async with open_store("memory:") as target:
        (result,) = await copied(store, target)
        assert (result.problem, result.copied) == ("", count)


# Listing.


async def listed(store: Store, agent: str | None = None, limit: int = 2, **options: Any) -> list[RunInfo]:
    runs: list[RunInfo] = []
    cursor = None
    while True:
        page = await store.list_runs(agent, limit=limit, cursor=cursor, **options)
        runs += page.runs
        cursor = page.cursor
        if cursor is None:
            return runs
        assert len(page.runs) == limit


async def test_runs_are_listed_in_pages_newest_first(opened: Handles, collection: Documents) -> None:
    documents = [
        run_document(f"r{number}", [note(1)] * (number % 3), agent="ab@c"[number % 4], meta={"n": number})
        for number in range(20)
    ]
    collection.insert_many(documents)
    expected = [
        (document["agent_id"], document["run_id"], len(document["events"]), document["meta"])
        for document in reversed(documents)
        if document["events"]
    ]
    store = await opened()
    for limit in (1, 2, 5, 50, 2**70):
        runs = await listed(store, limit=limit, include_reserved=True)
        assert [(info.agent, info.run, info.event_count, info.meta) for info in runs] == expected
        assert all(info.version == info.event_count for info in runs)
    assert [info.run for info in await listed(store)] == [run for agent, run, *_ in expected if agent != "@"]
    for agent in "ab@":
        assert [info.run for info in await listed(store, agent)] == [run for one, run, *_ in expected if one == agent]
    assert not await listed(store, "none such")


async def test_a_run_was_created_when_its_document_was_or_else_its_first_event(
    store: Store, collection: Documents
) -> None:
    made = datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC)
    collection.insert_many(
        [
            {**run_document("known", [note(1)]), "_id": ObjectId.from_datetime(made)},
            {**run_document("text", [note(1), note(0)]), "_id": "text"},
            {**run_document("odd", [5]), "_id": 5},
        ]
    )
    runs = {info.run: info.created for info in await listed(store)}
    assert runs == {"known": made, "text": TIME + timedelta(seconds=1), "odd": datetime(1970, 1, 1, tzinfo=UTC)}
    assert all(created.tzinfo is UTC for created in runs.values())


async def test_pages_pass_over_no_run_whatever_its_id(store: Store, collection: Documents) -> None:
    ids = [5, 2.5, "text", "other", b"bytes", TIME, {"a": 1}, ObjectId(), ObjectId(), True]
    collection.insert_many([{**run_document(f"r{number}", [note(1)]), "_id": one} for number, one in enumerate(ids)])
    for limit in (1, 2, 3):
        assert {info.run for info in await listed(store, limit=limit)} == {f"r{number}" for number in range(len(ids))}


async def test_a_page_that_no_reply_holds_is_cut_and_goes_on(opened: Handles, collection: Documents) -> None:
    meta = {"text": "x" * 6 * 1024 * 1024}
    for number in range(5):
        collection.insert_one(run_document(f"r{number}", [note(1)], meta=meta))
    store = await opened()
    page = await store.list_runs()
    assert 1 <= len(page.runs) <= 2
    runs = [*page.runs]
    while page.cursor is not None:
        page = await store.list_runs(cursor=page.cursor)
        runs += page.runs
    assert [info.run for info in runs] == [f"r{number}" for number in reversed(range(5))]


@pytest.mark.parametrize("cursor", ["", "x", "====", "é", "AAAA", "BQAAAAA=", "{}", "\0"])
async def test_a_cursor_that_is_none_is_refused(store: Store, collection: Documents, cursor: str) -> None:
    collection.insert_one(run_document("r", [note(1)]))
    with pytest.raises(CursorOutOfRange, match="is not a cursor that list_runs returned"):
        await store.list_runs(cursor=cursor)


# Following.


async def test_a_follower_is_given_what_comes(opened: Handles, collection: Documents) -> None:
    store = await opened()
    following = store.follow("a", "r")
    first = asyncio.ensure_future(anext(following))
    await asyncio.wait([first], timeout=0)
    collection.insert_one(run_document("r", [note(n) for n in range(100)]))
    events = [await first]
    events += [await anext(following) for _ in range(99)]
    collection.update_one({"run_id": "r"}, {"$push": {"events": {"$each": [note(100), note(101)]}}})
    events += [await anext(following), await anext(following)]
    assert [event.seq for event in events] == list(range(1, 103))
    assert events == (await store.load_run("a", "r")).log
    await following.aclose()
    following = store.follow("a", "r", after=101)
    assert (await anext(following)).seq == 102
    await following.aclose()


async def test_a_follower_beyond_the_end_or_of_a_run_cut_short_is_told(opened: Handles, collection: Documents) -> None:
    collection.insert_one(run_document("r", [note(1), note(2)]))
    store = await opened()
    with pytest.raises(CursorOutOfRange, match="nothing after seq 3"):
        await anext(store.follow("a", "r", after=3))
    following = store.follow("a", "r")
    assert [(await anext(following)).seq for _ in range(2)] == [1, 2]
    collection.delete_one({"run_id": "r"})
    with pytest.raises(RunDeleted, match="a/r was cut to 0 events while it was followed, after seq 2"):
        await anext(following)


async def test_closing_the_handle_ends_a_follower(opened: Handles, collection: Documents) -> None:
    collection.insert_one(run_document("r", [note(1)]))
    store = await opened()
    following = store.follow("a", "r")
    await anext(following)
    waiting = asyncio.ensure_future(anext(following))
    await asyncio.wait([waiting], timeout=0)
    await store.aclose()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(StoreClosed):
            await waiting


# Moving.


async def test_copied_again_after_the_original_has_grown_nothing_is_stored_twice(
    store: Store, collection: Documents, tmp_path: Path
) -> None:
    rows = [row["bson"] for row in golden()]
    collection.insert_many([run_document("one", rows[:5], meta={"k": 1}), run_document("two", [note(1)])])
    async with open_store(f"sqlite:///{tmp_path / 'new.db'}") as target:
        assert [(one.run, one.copied, one.problem) for one in await copied(store, target)] == [
            ("one", 5, ""),
            ("two", 1, ""),
        ]
        assert [one.copied for one in await copied(store, target)] == [0, 0]
        collection.update_one(
            {"run_id": "one"}, {"$push": {"events": {"$each": rows[5:]}}, "$set": {"updated_at": TIME}}
        )
        grown = await copied(store, target)
        assert [(one.already, one.copied, one.problem) for one in grown] == [(5, len(rows) - 5, ""), (1, 0, "")]
        held = await target.load_run("a", "one")
        assert held == await store.load_run("a", "one")
        # And so does whoever appends what was read by hand, to a run that has events of its own.
        await target.append_events("b", "one", new_event(PlannerNote("own")))
        results = [await target.append_events("b", "one", *held.log) for _ in range(2)]
        assert [(one.version, one.inserted) for one in results] == [(len(rows) + 1, len(rows)), (len(rows) + 1, 0)]


async def test_an_event_of_another_run_or_place_has_another_id(store: Store, collection: Documents) -> None:
    collection.insert_many([run_document(run, [note(1), note(1)]) for run in ("r", "s")])
    first = [event.event_id for event in (await store.load_run("a", "r")).log]
    second = [event.event_id for event in (await store.load_run("a", "s")).log]
    assert len({*first, *second}) == 4
    assert [event.event_id for event in (await store.load_run("a", "r", after=1)).log] == first[1:]


async def test_an_id_or_seq_in_a_document_is_not_ours(store: Store, collection: Documents) -> None:
    collection.insert_one(run_document("r", [note(1), note(2, event_id="x", seq=9)]))
    snapshot = await store.load_run("a", "r")
    assert [event.seq for event in snapshot.log] == [1, 2]
    assert "x" not in {event.event_id for event in snapshot.log}


# What it never does.


class Commands(CommandListener):
    """The commands that were sent."""

    def __init__(self) -> None:
        self.sent: list[Mapping[str, Any]] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.sent.append(event.command)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """It is what is sent that matters."""

    def failed(self, event: CommandFailedEvent) -> None:
        """As above."""


def state_of(collection: Documents) -> tuple[object, ...]:
    """All of the collection's database, to the byte."""
    database = collection.database
    raw = database.get_collection("agent_memory", codec_options=BYTES)
    return (
        sorted(database.list_collection_names()),
        collection.index_information(),
        [document.raw for document in cast("Any", raw).find().sort("_id", 1)],
    )


async def test_the_source_is_not_changed_and_only_asked(
    collection: Documents, mongo_server: MongoServer | GivenServer, mongo_database: str
) -> None:
    rows = [row["bson"] for row in golden()]
    collection.insert_many([run_document("r", rows), run_document("bad", [5]), run_document("later", [note(1)])])
    before = state_of(collection)
    commands = Commands()

    async def use(store: Store) -> None:
        async with open_store("memory:") as target:
            await copied(store, target)
            await copied(store, target)
        await listed(store, limit=1)
        await store.load_run("a", "r", types=["tool_call"], limit=1)
        following = store.follow("a", "r")
        for _ in rows:
            await anext(following)
        await following.aclose()
        for change in changes(store):
            with pytest.raises(InvalidArgument):
                await change

    async with AsyncMongoClient[dict[str, Any]](mongo_server.uri(), event_listeners=[commands]) as client:
        await use(await OriginalStore.open(client, mongo_database))
    with MongoClient[dict[str, Any]](mongo_server.uri(), event_listeners=[commands]) as sync_client:
        handles = Handles(lambda: SyncOriginalStore(sync_client, mongo_database))
        await use(await handles())
        await handles.close()
    assert state_of(collection) == before
    names = {next(iter(sent)) for sent in commands.sent}
    assert {"find", "aggregate"} <= names <= {"find", "aggregate", "killCursors", "endSessions"}
    stages = {name for sent in commands.sent for stage in sent.get("pipeline", ()) for name in stage}
    assert stages == {"$match", "$sort", "$project", "$limit"}


def changes(store: Store) -> Sequence[Awaitable[object]]:
    return [
        store.append_events("a", "r", new_event(PlannerNote("n"))),
        store.append_events("a", "new", new_event(PlannerNote("n")), expected_version=0, meta={"k": 1}, first_seq=1),
        store.append_events("a", "r"),
        store.redact_events("a", "r", [1], reason="asked"),
        store.delete_run("a", "r"),
        store.expire_runs(),
    ]


async def test_changes_are_refused_saying_what_to_do(opened: Handles, collection: Documents) -> None:
    collection.insert_one(run_document("r", [note(1)]))
    for change in changes(await opened()):
        with pytest.raises(InvalidArgument, match="only read: copy it first, as in amlog copy 'mongodb://"):
            await change


# Opening.


async def test_another_collection(mongo_server: MongoServer | GivenServer, collection: Documents) -> None:
    database = collection.database
    database["tenant-7.memory"].insert_one(run_document("r", [note(1)]))
    url = mongo_server.uri(database.name, layout="original", collection="tenant-7.memory")
    async with open_store(url) as store:
        assert (await store.load_run("a", "r")).version == 1


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"layout": "new"}, "must be commits or original"),
        ({"collection": "agent_memory"}, "is for layout=original"),
        ({"layout": "original", "collection": "$cmd"}, "is no name of a collection"),
        ({"layout": "original", "collection": "system.users"}, "is no name of a collection"),
        ({"layout": "original", "collection": ""}, "is no name of a collection"),
        ({"layout": "original", "collection_prefix": "x_"}, "are not for layout=original"),
        ({"layout": "original", "max_event_bytes": 5}, "are not for layout=original"),
    ],
)
async def test_options_that_do_not_fit_are_refused(
    mongo_server: MongoServer | GivenServer, options: dict[str, Any], found: str
) -> None:
    url = mongo_server.uri("agents", **options)
    with pytest.raises(InvalidArgument, match=found):
        await open_store(url)
    with pytest.raises(InvalidArgument, match=found):
        open_sync_store(url)


async def test_what_a_later_release_wrote_is_not_cut_short_in_silence(collection: Documents, url: str) -> None:
    collection.insert_one(run_document("r", [note(1)]))
    later = collection.database["agent_memory_events"]
    later.insert_one({"kind": "somebody else's"})
    async with open_store(url) as store:
        assert (await store.load_run("a", "r")).version == 1
    later.drop()
    later.insert_one({"agent_id": "a", "run_id": "r", "events": [note(2)], "created_at": TIME})
    with pytest.raises(SchemaTooNew, match="agent_memory_events holds what a later release of the original"):
        await open_store(url)
    with pytest.raises(SchemaTooNew, match="runs would be cut short"):
        open_sync_store(url)


def test_a_server_that_is_away_is_an_error_in_time() -> None:
    with reserve_port() as reservation, pytest.raises(StoreUnavailable, match="MongoDB database agents: ") as caught:
        open_sync_store(f"mongodb://{HOST}:{port_of(reservation)}/agents?layout=original&timeoutMS=200")
    assert isinstance(caught.value.__cause__, PyMongoError)


# The commands.


def test_the_commands_work_on_it(
    collection: Documents, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMLOG_STORE", raising=False)
    amlog = Amlog(tmp_path, capsys)
    rows = [row["bson"] for row in golden()]
    collection.insert_many([run_document("r", rows), run_document("s", [note(1), note(2)])])
    assert [one["name"] for one in amlog.ok("runs", "--store", url, "--json").json["runs"]] == ["a/s", "a/r"]
    shown = amlog.ok("show", "s", "--store", url, "--json").json_lines
    assert [one["data"] for one in shown] == [{"note": "note 1"}, {"note": "note 2"}]
    assert amlog.ok("verify", "--store", url, "--json").json["ok"]
    ran = amlog.ok("copy", url, amlog.url)
    assert ran.out == f"✔ copied {len(rows) + 2} events of 2 runs\n"
    assert amlog.ok("export", "--all", "--store", amlog.url).out == amlog.ok("export", "--all", "--store", url).out
    assert amlog.ok("copy", url, amlog.url).out == f"✔ nothing new: 2 runs with {len(rows) + 2} events already there\n"
    assert "only read: copy it first" in amlog.error("delete", "a/r", "--yes", "--store", url)
    amlog.append("a", "new", PlannerNote("n"))
    ran = amlog("copy", amlog.url, url)
    assert (ran.status, ran.err) == (1, "")
    assert "only read: copy it first" in ran.out
    collection.insert_one(run_document("t", [note(1), 5]))
    (finding,) = amlog("verify", "t", "--store", url, "--json").json["findings"]
    assert (finding["check"], finding["seq"]) == ("undecodable", 2)
    ran = amlog("copy", url, amlog.url)
    assert ran.status == 1
    assert "a/t  #2  in the source, cannot be read: an event must be a map" in ran.out


def test_the_help_of_import_says_how_to_bring_it_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = " ".join(Amlog(tmp_path, capsys).ok("import", "--help").out.replace("│", " ").split())
    assert "amlog copy 'mongodb://HOST/DATABASE?layout=original' TARGET_URL" in said


async def test_one_run_can_be_copied_by_name(store: Store, collection: Documents) -> None:
    collection.insert_many([run_document("r", [note(1)]), run_document(cast("Any", 5), [note(1)])])
    async with open_store("memory:") as target:
        assert (await copy_run(store, target, "a", "r")).copied == 1
