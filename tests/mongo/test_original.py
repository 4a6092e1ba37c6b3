"""Tests the import of the Go original's runs: exact events, stored once, with an unchanged source.

``golden/original-mongo.jsonl`` has events that the original itself wrote (v1.0.3, its own code run on made-up values):
``bson`` as its driver stores them, as extended JSON, and ``json`` as its JSON encoder writes the same ones.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId, json_util
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient
from pymongo.collection import Collection
from pymongo.errors import PyMongoError
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from agent_memory_log import (
    Event,
    PlannerNote,
    Snapshot,
    Store,
    Thinking,
    ToolCall,
    UnknownPayload,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.backend_kit import StoreUrl
from agent_memory_log.errors import DecodeError, InvalidArgument, SchemaTooNew, StoreUnavailable
from agent_memory_log.transfer.importing import ImportedRun, import_runs
from agent_memory_log_mongo.backend import backend
from agent_memory_log_mongo.engine.call import BYTES
from agent_memory_log_mongo.go_original import GoOriginalRun, read_run, read_runs
from agent_memory_log_mongo.settings import Settings
from tests.amlog import Amlog
from tests.mongo.ports import HOST, port_of, reserve_port
from tests.mongo.server import GivenServer, MongoServer

GOLDEN = Path(__file__).parents[1] / "golden" / "original-mongo.jsonl"
TIME = datetime(2026, 3, 1, 9, 30, 0, 125_000, tzinfo=UTC)

Documents = Collection[dict[str, Any]]


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
    """Return the collection with the original's index."""
    source: Documents = mongo_server.client()[mongo_database]["agent_memory"]
    source.create_index([("agent_id", 1), ("run_id", 1)], unique=True)
    return source


@pytest.fixture(autouse=True)
def close_collection(collection: Documents) -> Any:
    yield
    collection.database.client.close()


@pytest.fixture
def url(mongo_server: MongoServer | GivenServer, mongo_database: str) -> str:
    return mongo_server.uri(mongo_database)


@pytest.fixture
async def target() -> AsyncGenerator[Store]:
    async with open_store("memory:") as store:
        yield store


async def imported(url: str, target: Store, *, reserved: bool = False) -> list[ImportedRun]:
    async with aclosing(backend.go_original_runs(StoreUrl.parse(url))) as runs:
        return [item async for item in import_runs(target, runs, reserved=reserved)]


async def import_one(url: str, target: Store, run: str = "r") -> Snapshot:
    """Import all runs, assert that none has a problem, and return one of them from the target."""
    assert not [item.problem for item in await imported(url, target) if item.problem]
    return await target.load_run("a", run)


# Documents of the original.


async def test_import_reads_the_events_of_the_original(url: str, target: Store, collection: Documents) -> None:
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
    snapshot = await import_one(url, target)
    assert (snapshot.version, snapshot.last_seq, snapshot.first_seq) == (len(rows), len(rows), 1)
    for seq, (event, row) in enumerate(zip(snapshot.log, rows, strict=True), 1):
        expected_event = Event.from_map(row["json"])
        assert (event.seq, event.type, event.data, event.labels) == (
            seq,
            expected_event.type,
            expected_event.data,
            expected_event.labels,
        )
        # The original stores milliseconds in MongoDB, and nanoseconds in JSON.
        assert event.timestamp == expected_event.timestamp.replace(
            microsecond=expected_event.timestamp.microsecond // 1000 * 1000
        )
        assert event.timestamp.tzinfo is UTC
    assert len({event.event_id for event in snapshot.log}) == len(rows)


async def test_ids_must_be_text(url: str, target: Store, collection: Documents) -> None:
    names = ["$ne", "{'$gt': ''}", "a.b", "..", "/", "\0", "é😀", " "]
    collection.insert_many([run_document(name, [note(1)], agent=name) for name in names])
    await imported(url, target)
    for name in names:
        assert (await target.load_run(name, name)).version == 1
        assert [info.run for info in (await target.list_runs(name)).runs] == [name]
    assert (await target.load_run("$ne", "é😀")).version == 0


# Types of BSON that JSON does not have.


async def test_bson_values_become_the_originals_json(url: str, target: Store, collection: Documents) -> None:
    stored_value = {
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
        {"type": "user_message", "timestamp": TIME, "data": {"structured": stored_value}},
        {"type": "ours.own", "timestamp": TIME, "data": {**stored_value, "raw": b"\xff\0"}},
        {"type": "user_message", "timestamp": TIME, "data": {"structured": b"\xff\0"}},
        {
            "type": "tool_call",
            "timestamp": TIME,
            "data": {"tool_call_id": "t", "tool_name": "n", "payload": b'{"q":1}'},
        },
        {"type": "thinking", "timestamp": TIME, "data": {"redacted": b"\xff\0"}},
        {"type": "tool_call", "timestamp": TIME, "data": {**names, "payload": stored_value}},
    ]
    collection.insert_one(run_document("r", events, meta=stored_value))
    snapshot = await import_one(url, target)
    message, own, complete, call, thought, odd = (event.data for event in snapshot.log)
    assert isinstance(message, UserMessage)
    assert message.structured == plain
    assert isinstance(own, UnknownPayload)
    assert own.data == {**plain, "raw": "/wA="}
    assert complete == UserMessage(structured="/wA=")
    assert call == ToolCall("t", "n", payload_json='{"q":1}')
    assert thought == Thinking(redacted=b"\xff\0")
    assert isinstance(odd, ToolCall)
    assert odd.input() == plain
    assert snapshot.meta == plain
    assert type(cast("Any", snapshot.meta)["long"]) is int


# Invalid documents.

HOSTILE: list[tuple[str, object, str]] = [
    ("a number", 5, "an event must be a map, got int 5"),
    ("null", None, "an event must be a map, got null"),
    ("a list", [note(1)], "an event must be a map, got list"),
    ("empty", {}, "type must be non-empty text"),
    ("no type", {"timestamp": TIME, "data": {}}, "type must be non-empty text"),
    ("type a number", {**note(1), "type": 5}, "type must be non-empty text, got int 5"),
    ("no data", {"type": "planner_note", "timestamp": TIME}, "planner_note: data is absent"),
    ("data null", {**note(1), "data": None}, "planner_note: data is null"),
    ("data a list", {**note(1), "data": [1]}, "planner_note: data must be a map, got list"),
    ("no timestamp", {"type": "planner_note", "data": {"note": "n"}}, "timestamp must be"),
    ("timestamp a number", {**note(1), "timestamp": 5}, "timestamp must be RFC 3339 text, got int 5"),
    ("labels a list", {**note(1), "labels": ["x"]}, "labels must be a map"),
    ("labels to numbers", {**note(1), "labels": {"k": 1}}, "labels must map text to text"),
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


@pytest.mark.parametrize(("item", "expected"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
async def test_unreadable_event_is_reported_and_other_runs_are_imported(
    url: str, target: Store, collection: Documents, item: object, expected: str
) -> None:
    collection.insert_many([run_document("r", [note(1), item, note(3)]), run_document("whole", [note(1)])])
    damaged, complete = await imported(url, target)
    assert (complete.problem, complete.inserted) == ("", 1)
    assert (damaged.read, damaged.inserted) == (1, 1)
    assert damaged.problem.startswith("a/r: event 2 cannot be read: ")
    assert expected in damaged.problem
    assert [event.data for event in (await target.load_run("a", "r")).log] == [PlannerNote("note 1")]


HELD_BY_A_REAL_SERVER: list[tuple[str, Any, bytes, bytes, str]] = [
    ("text cut within a character", "é", b"\xc3\xa9", b"\xc3\x28", "utf-8"),
    ("text that is bytes", "XX", b"XX", b"\xff\xfe", "utf-8"),
]


@pytest.mark.parametrize("row", HELD_BY_A_REAL_SERVER, ids=[row[0] for row in HELD_BY_A_REAL_SERVER])
@pytest.mark.parametrize("field", ["type", "data", "labels"])
def test_text_outside_utf_8_makes_an_event_unreadable(field: str, row: tuple[str, Any, bytes, bytes, str]) -> None:
    """Go's driver writes any bytes as a string. The test server would refuse them, so the test has no server."""
    _, text, before, after, expected = row
    changed = {"type": {"type": text}, "data": {"data": {"note": text}}, "labels": {"labels": {"k": text}}}[field]
    encoded = bson.encode(note(2, **changed)).replace(before, after)
    items = [RawBSONDocument(item, BYTES) for item in (bson.encode(note(1)), encoded)]
    events = GoOriginalRun("a", "r", [*items]).events()
    assert next(events).data == PlannerNote("note 1")
    with pytest.raises(DecodeError, match="a/r: event 2 cannot be read: ") as caught:
        next(events)
    assert expected in str(caught.value)


def test_id_outside_utf_8_is_refused() -> None:
    encoded = bson.encode({"_id": 1, **run_document("XX", [note(1)])}).replace(b"XX", b"\xff\xfe")
    with pytest.raises(DecodeError, match="the _id int 1 names no run: run holds a lone surrogate"):
        read_run(RawBSONDocument(encoded, BYTES), "agent_memory")


@pytest.mark.parametrize("milliseconds", [-(2**62), 2**62, 253_402_300_800_000])
def test_date_outside_the_supported_years_makes_an_event_unreadable(milliseconds: int) -> None:
    item = RawBSONDocument(bson.encode(note(2, timestamp=DatetimeMS(milliseconds))), BYTES)
    with pytest.raises(DecodeError, match="a/r: event 1 cannot be read: planner_note: timestamp must be"):
        list(GoOriginalRun("a", "r", [item]).events())


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ("text", "an event must be a map, got str 'text'"),
        (5, "an event must be a map, got int 5"),
        ({"0": note(1)}, "type must be non-empty text"),
        (TIME, "an event must be a map, got datetime"),
    ],
)
async def test_events_outside_a_list_are_unreadable(
    url: str, target: Store, collection: Documents, events: object, expected: str
) -> None:
    collection.insert_one(run_document("r", events))
    (result,) = await imported(url, target)
    assert result.problem.startswith("a/r: event 1 cannot be read: ")
    assert expected in result.problem
    assert (result.version, result.read, result.inserted) == (0, 0, 0)


async def test_run_without_events_is_skipped(url: str, target: Store, collection: Documents) -> None:
    collection.insert_many([run_document("empty", []), run_document("null", None), {"agent_id": "a", "run_id": "x"}])
    assert await imported(url, target) == []


ODD_METAS: list[tuple[object, str]] = [
    (5, "must be a map, got int 5"),
    (["k"], "must be a map, got list"),
    ({"k": [Decimal128("1")]}, ".k[0] is of type Decimal128"),
]


@pytest.mark.parametrize(("meta", "expected"), ODD_METAS)
async def test_unreadable_meta_is_reported(
    url: str, target: Store, collection: Documents, meta: object, expected: str
) -> None:
    collection.insert_many([run_document("r", [note(1)], meta=meta), run_document("s", [note(1)])])
    odd, sound = await imported(url, target)
    assert odd.problem.startswith("a/r: the run's meta")
    assert expected in odd.problem
    assert (odd.inserted, sound.inserted, sound.problem) == (0, 1, "")


@pytest.mark.parametrize(
    ("agent", "run", "expected"),
    [
        (5, "r", "agent must be non-empty text of at most 512 characters, got int 5"),
        ("", "r", "agent must be"),
        ("x" * 513, "r", "agent must be"),
        ({"$gt": ""}, "r", "agent must be"),
        ("b", None, "run must be"),
        ("b", ["r"], "run must be"),
    ],
)
async def test_document_without_a_run_raises_after_all_other_imports(
    url: str, target: Store, collection: Documents, agent: object, run: Any, expected: str
) -> None:
    collection.insert_many([{**run_document(run, [note(1)], agent), "_id": "odd"}, run_document("r", [note(1)])])
    with pytest.raises(DecodeError, match="agent_memory: the document with the _id str 'odd' names no run: ") as caught:
        await imported(url, target)
    assert expected in str(caught.value)
    assert [info.run for info in (await target.list_runs()).runs] == ["r"]


async def test_second_document_of_a_run_is_reported(url: str, target: Store, collection: Documents) -> None:
    collection.drop_index("agent_id_1_run_id_1")
    collection.insert_many([run_document("r", [note(1)]), run_document("r", [note(1), note(2)])])
    for inserted in (1, 0):
        first, second = await imported(url, target)
        assert (first.problem, first.inserted) == ("", inserted)
        assert (second.read, second.inserted) == (0, 0)
        assert "a/r: the collection agent_memory has several documents for this run" in second.problem


async def test_event_refused_by_the_target_is_reported(url: str, target: Store, collection: Documents) -> None:
    ended = {"expires_at": "2001-01-01T00:00:00Z"}
    collection.insert_many(
        [
            run_document("r", [note(1)], agent="@memory"),
            run_document("ended", [note(1)], meta=ended),
            run_document("s", [note(1), note(2, type="memory_added")]),
            run_document("t", [note(1)]),
        ]
    )
    reserved, over, typed, plain = await imported(url, target)
    assert "@memory" in reserved.problem
    assert "expire" in over.problem
    assert "memory_added" in typed.problem
    assert (plain.inserted, plain.problem) == (1, "")
    (imported_run, *_) = await imported(url, target, reserved=True)
    assert (imported_run.inserted, imported_run.problem) == (1, "")


# Size.


async def test_document_near_the_size_limit_is_imported(url: str, target: Store, collection: Documents) -> None:
    text = "x" * 1000
    item: dict[str, Any] = {"type": "planner_note", "timestamp": TIME, "data": {"note": text}}
    count = (16 * 1024 * 1024 - 1000) // (len(bson.encode(item)) + 8)
    document = run_document("r", [item] * count)
    assert 16 * 1024 * 1024 - 100_000 < len(bson.encode(document)) <= 16 * 1024 * 1024
    collection.insert_one(document)
    (result,) = await imported(url, target)
    assert (result.problem, result.read, result.inserted) == ("", count, count)
    assert (await target.load_run("a", "r", types=())).version == count


# The order of the runs.


async def test_runs_are_imported_oldest_document_first(url: str, target: Store, collection: Documents) -> None:
    ids = [5, 2.5, "text", "other", b"bytes", TIME, {"a": 1}, ObjectId(), ObjectId(), True]
    collection.insert_many([{**run_document(f"r{number}", [note(1)]), "_id": item} for number, item in enumerate(ids)])
    names = [item.run for item in await imported(url, target)]
    assert {*names} == {f"r{number}" for number in range(len(ids))}
    assert [item for item in names if item in {"r7", "r8"}] == ["r7", "r8"]


async def test_runs_of_several_replies_are_imported(url: str, target: Store, collection: Documents) -> None:
    text = "x" * 6 * 1024 * 1024
    for number in range(5):
        collection.insert_one(run_document(f"r{number}", [note(1, labels={"text": text})]))
    assert [item.run for item in await imported(url, target)] == [f"r{number}" for number in range(5)]


# Repeated imports.


async def test_repeated_import_stores_only_new_events(url: str, collection: Documents, tmp_path: Path) -> None:
    rows = [row["bson"] for row in golden()]
    collection.insert_many([run_document("one", rows[:5], meta={"k": 1}), run_document("two", [note(1)])])
    async with open_store(f"sqlite:///{tmp_path / 'new.db'}") as target:
        assert [(item.run, item.inserted, item.problem) for item in await imported(url, target)] == [
            ("one", 5, ""),
            ("two", 1, ""),
        ]
        assert [item.inserted for item in await imported(url, target)] == [0, 0]
        collection.update_one(
            {"run_id": "one"}, {"$push": {"events": {"$each": rows[5:]}}, "$set": {"updated_at": TIME}}
        )
        grown = await imported(url, target)
        assert [(item.read, item.inserted, item.problem) for item in grown] == [
            (len(rows), len(rows) - 5, ""),
            (1, 0, ""),
        ]
        stored_value = await target.load_run("a", "one")
        assert [event.seq for event in stored_value.log] == list(range(1, len(rows) + 1))
        assert stored_value.meta == {"k": 1}


async def test_import_appends_new_events_after_the_targets_own(url: str, target: Store, collection: Documents) -> None:
    await target.append_events("a", "r", new_event(PlannerNote("own")))
    collection.insert_one(run_document("r", [note(1), note(2)]))
    for inserted in (2, 0):
        (result,) = await imported(url, target)
        assert (result.version, result.read, result.inserted) == (3, 2, inserted)
    log = (await target.load_run("a", "r")).log
    assert [event.data for event in log] == [PlannerNote("own"), PlannerNote("note 1"), PlannerNote("note 2")]


async def test_derived_id_depends_on_run_and_position(url: str, target: Store, collection: Documents) -> None:
    collection.insert_many([run_document(run, [note(1), note(1)]) for run in ("r", "s")])
    first = [event.event_id for event in (await import_one(url, target)).log]
    second = [event.event_id for event in (await target.load_run("a", "s")).log]
    assert len({*first, *second}) == 4


async def test_id_and_seq_fields_of_the_original_are_ignored(url: str, target: Store, collection: Documents) -> None:
    collection.insert_one(run_document("r", [note(1), note(2, event_id="x", seq=9)]))
    snapshot = await import_one(url, target)
    assert [event.seq for event in snapshot.log] == [1, 2]
    assert "x" not in {event.event_id for event in snapshot.log}


# The source is read only.


class Commands(CommandListener):
    """A listener that records the sent commands."""

    def __init__(self) -> None:
        self.sent: list[Mapping[str, Any]] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.sent.append(event.command)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Ignore replies; the test checks only the requests."""

    def failed(self, event: CommandFailedEvent) -> None:
        """Ignore failures too."""


def state_of(collection: Documents) -> tuple[object, ...]:
    """Return the bytes of all documents in the collection's database."""
    database = collection.database
    raw = database.get_collection("agent_memory", codec_options=BYTES)
    return (
        sorted(database.list_collection_names()),
        collection.index_information(),
        [document.raw for document in cast("Any", raw).find().sort("_id", 1)],
    )


async def test_import_only_reads_the_source(
    collection: Documents, mongo_server: MongoServer | GivenServer, mongo_database: str, target: Store
) -> None:
    rows = [row["bson"] for row in golden()]
    collection.insert_many([run_document("r", rows), run_document("bad", [5]), run_document("later", [note(1)])])
    before = state_of(collection)
    commands = Commands()
    async with AsyncMongoClient[dict[str, Any]](mongo_server.uri(), event_listeners=[commands]) as client:
        for _ in range(2):
            runs = read_runs(client, mongo_database, "agent_memory", Settings())
            assert len([item async for item in import_runs(target, runs)]) == 3
    assert state_of(collection) == before
    assert {next(iter(sent)) for sent in commands.sent} <= {"find", "getMore", "killCursors", "endSessions"}


# Opening.


async def test_import_reads_the_collection_of_the_url(
    mongo_server: MongoServer | GivenServer, collection: Documents, target: Store
) -> None:
    database = collection.database
    database["tenant-7.memory"].insert_one(run_document("r", [note(1)]))
    url = mongo_server.uri(database.name, collection="tenant-7.memory")
    assert (await import_one(url, target)).version == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"collection": "$cmd"}, "is not a valid collection name"),
        ({"collection": "system.users"}, "is not a valid collection name"),
        ({"collection": ""}, "is not a valid collection name"),
        ({"collection_prefix": "x_"}, "does not accept the option 'collection_prefix'"),
        ({"max_event_bytes": 5}, "does not accept the option 'max_event_bytes'"),
        ({"readPreference": "secondary"}, "has readPreference"),
    ],
)
async def test_unsupported_options_are_refused(
    mongo_server: MongoServer | GivenServer, target: Store, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidArgument, match=expected):
        await imported(mongo_server.uri("agents", **options), target)


async def test_database_of_a_later_release_is_refused(collection: Documents, url: str, target: Store) -> None:
    collection.insert_one(run_document("r", [note(1)]))
    later = collection.database["agent_memory_events"]
    later.insert_one({"kind": "somebody else's"})
    assert (await import_one(url, target)).version == 1
    later.drop()
    later.insert_one({"agent_id": "a", "run_id": "r", "events": [note(2)], "created_at": TIME})
    with pytest.raises(SchemaTooNew, match="agent_memory_events holds events that a release of the original"):
        await imported(url, target)


async def test_missing_server_raises_within_the_timeout(target: Store) -> None:
    with reserve_port() as reservation, pytest.raises(StoreUnavailable, match="MongoDB database agents: ") as caught:
        await imported(f"mongodb://{HOST}:{port_of(reservation)}/agents?timeoutMS=200", target)
    assert isinstance(caught.value.__cause__, PyMongoError)


async def test_open_refuses_a_database_of_the_original(collection: Documents, url: str) -> None:
    collection.insert_one({"somebody": "else's"})
    async with open_store(f"{url}{'&' if '?' in url else '?'}collection_prefix=other_"):
        pass
    collection.insert_one(run_document("r", [note(1)]))
    names = sorted(collection.database.list_collection_names())
    with pytest.raises(InvalidArgument, match="amlog import go-mongodb"):
        await open_store(url)
    with pytest.raises(InvalidArgument, match="amlog import go-mongodb"):
        open_sync_store(url)
    assert sorted(collection.database.list_collection_names()) == names
    async with open_store(f"{url}{'&' if '?' in url else '?'}collection_prefix=other_") as store:
        assert not (await store.list_runs()).runs, "what was opened before goes on"
    collection.database.drop_collection("other_info")
    async with open_store(f"{url}{'&' if '?' in url else '?'}collection_prefix=other_"):
        assert "other_info" in collection.database.list_collection_names(), "also where a restore left something out"


# The command.


def test_command_imports_and_reports_unreadable_events(
    collection: Documents, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMLOG_STORE", raising=False)
    amlog = Amlog(tmp_path, capsys)
    assert "nothing to import" in amlog.error("import", "go-mongodb", url, "--store", amlog.url)
    rows = [row["bson"] for row in golden()]
    collection.insert_many([run_document("r", rows), run_document("s", [note(1), note(2)])])
    ran = amlog.ok("import", "go-mongodb", url, "--store", amlog.url)
    assert ran.out == f"✔ imported {len(rows) + 2} events into 2 runs\n"
    printed = amlog.ok("show", "s", "--store", amlog.url, "--json").json_lines
    assert [item["data"] for item in printed] == [{"note": "note 1"}, {"note": "note 2"}]
    assert amlog.ok("verify", "--store", amlog.url, "--json").json["ok"]
    ran = amlog.ok("import", "go-mongodb", url, "--store", amlog.url)
    assert ran.out == f"✔ nothing new: 2 runs with {len(rows) + 2} events already stored\n"
    collection.insert_one(run_document("t", [note(1), 5]))
    ran = amlog("import", "go-mongodb", url, "--store", amlog.url)
    assert (ran.status, ran.err) == (1, "")
    assert "a/t: event 2 cannot be read: an event must be a map" in ran.out
    assert f"✘ imported 1 event into 3 runs   {len(rows) + 2} already stored" in ran.out
    ran = amlog("import", "go-mongodb", url, "--store", amlog.url, "--json")
    assert ran.status == 1
    assert [bool(item["problem"]) for item in ran.json["runs"]] == [False, False, True]
    assert "amlog import go-mongodb" in amlog.error("runs", "--store", url)


def test_command_refuses_a_source_outside_mongodb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    amlog = Amlog(tmp_path, capsys)
    assert "mongodb://host/database" in amlog.error(
        "import", "go-mongodb", "sqlite:///x.db", "--store", amlog.url, status=2
    )
