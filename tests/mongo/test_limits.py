"""Tests size limits: too large documents are refused before they are sent, and all others round-trip."""

from __future__ import annotations

import uuid
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import bson
import msgspec
import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from agent_memory_log import (
    AssistantMessage,
    Event,
    JsonValue,
    PlannerNote,
    Redacted,
    SyncStore,
    ToolCall,
    ToolResult,
    UserMessage,
    VersionConflict,
    new_event,
    open_sync_store,
)
from agent_memory_log.conformance.samples import NOON
from agent_memory_log.errors import EventTooLarge, InvalidArgument
from agent_memory_log.events.payloads import Redaction
from agent_memory_log_mongo import Settings, SyncMongoStore
from agent_memory_log_mongo.settings import DEFAULT_MAX_EVENT_BYTES, MAX_DOCUMENT_BYTES
from tests.mongo.server import GivenServer, MongoServer

Document = dict[str, Any]

MIB = 1024 * 1024
TIMEOUT_MS = 180_000
"""The time limit of a call. A disk that stalls may need more than the default for documents of this size."""

END: dict[str, JsonValue] = {"expires_at": "9999-01-01T00:00:00Z"}


class InsertSizes(CommandListener):
    """A listener that records the sent commands and the sizes of the stored documents."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sizes: list[int] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.names.append(event.command_name)
        if event.command_name == "insert":
            document = event.command["documents"][0]
            self.sizes.append(len(document.raw) if hasattr(document, "raw") else len(bson.encode(document)))

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        self.names.append(f"{event.command_name} failed")


@pytest.fixture(scope="module")
def uri(mongo_server: MongoServer | GivenServer) -> Generator[str]:
    """Return one database for all tests of this module, because dropping large databases is slow."""
    name = f"amlog_test_{uuid.uuid4().hex}"
    yield mongo_server.uri(name, timeoutMS=TIMEOUT_MS)
    if isinstance(mongo_server, GivenServer):  # a MongoServer deletes its own data
        with mongo_server.client() as client:
            client.drop_database(name)


@pytest.fixture
def run() -> str:
    return uuid.uuid4().hex


@contextmanager
def _listening(uri: str, settings: Settings | None = None) -> Generator[tuple[SyncMongoStore, InsertSizes]]:
    listener = InsertSizes()
    # The settings limit a call; the limit in the client's URI does not count.
    patient = msgspec.structs.replace(settings or Settings(), timeout_seconds=TIMEOUT_MS / 1000)
    with (
        MongoClient[Document](uri, event_listeners=[listener]) as client,
        SyncMongoStore.open(client, client.get_default_database().name, patient) as store,
    ):
        listener.names.clear()
        yield store, listener


def _note(text: str = "n", event_id: str | None = None) -> Event:
    # The time is fixed, because times differ in their encoded size.
    return new_event(PlannerNote(note=text), timestamp=NOON, event_id=event_id)


def _nothing_of(uri: str, run: str) -> None:
    """Assert that no collection has a document of the run."""
    with MongoClient[Document](uri) as client:
        database = client.get_default_database()
        assert [database[name].count_documents({"run": run}) for name in ("amlog_commits", "amlog_runs")] == [0, 0]


def _refused(uri: str, run: str, *events: Event, settings: Settings | None = None, **options: Any) -> EventTooLarge:
    """Assert that an append to a new and to an existing run is refused and stores nothing."""
    with _listening(uri, settings) as (store, listener):
        with pytest.raises(EventTooLarge) as caught:
            store.append_events("agent", run, *events, **options)
        assert not {"insert", "update"} & set(listener.names), "it was refused before anything was sent"
        _nothing_of(uri, run)
        store.append_events("agent", f"{run} there", _note())
        listener.names.clear()
        for _ in range(2):
            with pytest.raises(EventTooLarge):
                store.append_events("agent", f"{run} there", *events, **options)
        assert listener.names == []
        assert store.load_run("agent", f"{run} there").version == 1
        assert store.append_events("agent", f"{run} there", _note()).version == 2
    assert caught.value.size > caught.value.limit
    return caught.value


# One event.


def test_event_above_its_limit_is_refused(uri: str, run: str) -> None:
    error = _refused(uri, run, _note("x" * DEFAULT_MAX_EVENT_BYTES))
    assert error.limit == DEFAULT_MAX_EVENT_BYTES
    assert error.size == DEFAULT_MAX_EVENT_BYTES + len('{"note":""}')


@pytest.mark.parametrize(
    "kind", ["text", "JSON text", "labels", "characters of several bytes", "JSON that BSON holds not"]
)
def test_event_at_its_limit_is_stored_and_one_byte_more_is_refused(uri: str, run: str, kind: str) -> None:
    settings = Settings(max_event_bytes=100_000)

    def sized(size: int) -> Event:
        if kind == "JSON text":
            frame = len('{"tool_call_id":"","tool_name":""}')
            return new_event(ToolResult("", "", result_json=" " + "1" * (size - frame - 1)))
        if kind == "labels":
            return new_event(PlannerNote(note=""), labels={"k": "v" * (size - len('{"note":""}') - 1)})
        if kind == "characters of several bytes":
            left = size - len('{"note":""}')
            return _note("\U0001f9ff" * (left // 4) + "x" * (left % 4))
        if kind == "JSON that BSON holds not":
            return new_event(UserMessage(structured={"$": "x" * (size - len('{"structured":{"$":""}}'))}))
        return _note("x" * (size - len('{"note":""}')))

    with _listening(uri, settings) as (store, listener):
        largest = sized(100_000)
        store.append_events("agent", run, largest)
        assert [event.data for event in store.load_run("agent", run).log] == [largest.data]
        listener.names.clear()
        for events in ([sized(100_001)], [_note(), sized(100_001), _note()]):
            with pytest.raises(EventTooLarge) as caught:
                store.append_events("agent", run, *events)
            assert (caught.value.size, caught.value.limit) == (100_001, 100_000)
        assert listener.names == []


def test_event_below_the_default_limit_is_stored(uri: str, run: str) -> None:
    with _listening(uri) as (store, listener):
        large = _note("x" * (DEFAULT_MAX_EVENT_BYTES - len('{"note":""}')))
        store.append_events("agent", run, large)
        assert store.append_events("agent", run, large).inserted == 0
        assert listener.sizes[0] < MAX_DOCUMENT_BYTES
    with open_sync_store(uri) as store:
        (loaded,) = store.load_run("agent", run).log
        assert loaded.data == large.data


# A run.


@pytest.mark.parametrize("first_seq", [2**53 - 1, 2**62, 2**63, 2**70])
def test_seq_above_the_limit_is_refused(uri: str, run: str, first_seq: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is the largest integer that JSON and JavaScript represent exactly."""
    monkeypatch.setattr("agent_memory_log.backend_kit.checks.MAX_FIRST_SEQ", 2**80)
    with _listening(uri) as (store, listener):
        with pytest.raises(InvalidArgument, match=r"the limit is 9,007,199,254,740,991"):
            store.append_events("agent", run, _note(), _note(), first_seq=first_seq)
        assert not {"insert", "update"} & set(listener.names)
        assert store.append_events("agent", run, _note(), first_seq=2**53 - 2, meta=END).version == 2**53 - 2
        assert store.append_events("agent", run, _note()).version == 2**53 - 1
        with pytest.raises(InvalidArgument, match="the limit is 9,007,199,254,740,991"):
            store.append_events("agent", run, _note())
    _nothing_of(uri, f"{run} beyond")


def test_meta_above_its_limit_is_refused(uri: str, run: str) -> None:
    """A run document above MongoDB's limit would make the list of runs fail."""
    with _listening(uri) as (store, listener):
        with pytest.raises(EventTooLarge, match="meta has"):
            store.append_events("agent", run, _note("", "e"), meta={"x": "x" * (MAX_DOCUMENT_BYTES - 16 * 1024)})
        assert not {"insert", "update"} & set(listener.names)
    _nothing_of(uri, run)


# One document.


def _frame(uri: str, events: list[Event], **options: Any) -> int:
    """Return the size in bytes of the document for these events."""
    with _listening(uri) as (store, listener):
        store.append_events("agent", uuid.uuid4().hex, *events, **options)
        return listener.sizes[0]


def test_largest_document_is_stored_and_one_byte_more_is_refused(uri: str, run: str) -> None:
    settings = Settings(max_event_bytes=MAX_DOCUMENT_BYTES)
    room = MAX_DOCUMENT_BYTES - _frame(uri, [_note("", "e-1")])
    with _listening(uri, settings) as (store, listener):
        largest = _note("x" * room, "e-1")
        store.append_events("agent", run, largest)
        assert listener.sizes == [MAX_DOCUMENT_BYTES]
        (loaded,) = store.load_run("agent", run).log
        assert loaded.data == largest.data
    error = _refused(uri, f"{run} beyond", _note("x" * (room + 1), "e-1"), settings=settings)
    assert error.limit == MAX_DOCUMENT_BYTES


def test_batch_must_fit_in_one_document(uri: str, run: str) -> None:
    batch = [_note("x" * MIB, f"e-{number}") for number in range(15)]
    with _listening(uri) as (store, listener):
        assert store.append_events("agent", run, *batch).version == 15
        assert listener.names.count("insert") == 1
        assert store.append_events("agent", run, *batch).inserted == 0
    error = _refused(uri, f"{run} beyond", *batch, _note("x" * MIB))
    assert error.limit == MAX_DOCUMENT_BYTES
    assert "append it in parts" in str(error)


@pytest.mark.parametrize("description", ["meta", "meta that BSON holds not", "labels", "ids", "an end"])
def test_limit_includes_the_other_fields_of_a_commit(uri: str, run: str, description: str) -> None:
    """The events alone would fit in the document."""
    size = 600 * 1024
    events = [_note("x" * size, f"e-{number}") for number in range(24)]
    room = MAX_DOCUMENT_BYTES - _frame(uri, events)
    assert room > 0
    options: dict[str, Any] = {}
    if description == "meta":
        options["meta"] = {"large": "x" * room}
    elif description == "meta that BSON holds not":
        options["meta"] = {"$large": "x" * room}
    elif description == "labels":
        events[0] = new_event(PlannerNote(note="x" * size), labels={"k": "v" * room}, event_id="e-0")
    else:
        events[-1] = _note("x" * (size + room - 3), "e-23")
        assert _frame(uri, events) == MAX_DOCUMENT_BYTES - 3
        if description == "ids":
            events[0] = _note("x" * size, "e-0, which is longer")
        else:
            options["meta"] = {"expires_at": "9999-01-01T00:00:00Z"}
    assert "needs a document of" in str(_refused_once(uri, run, events, options))
    if description.startswith("meta"):
        with open_sync_store(uri) as store:
            store.append_events("agent", run, _note())
            assert store.append_events("agent", run, *events, **options).inserted == 24, "the run has its meta already"


def _refused_once(uri: str, run: str, events: list[Event], options: dict[str, Any]) -> EventTooLarge:
    with _listening(uri) as (store, listener):
        with pytest.raises(EventTooLarge) as caught:
            store.append_events("agent", run, *events, **options)
        assert not {"insert", "update"} & set(listener.names)
    _nothing_of(uri, run)
    return caught.value


def test_limit_measures_the_size_in_bson(uri: str, run: str) -> None:
    numbers: JsonValue = [1] * 1_450_000
    error = _refused_once(uri, run, [new_event(UserMessage(structured=numbers))], {})
    assert error.size > MAX_DOCUMENT_BYTES > 2 * 1_450_000


def test_ids_of_several_commands_are_looked_up(uri: str, run: str) -> None:
    events = [_note("", f"{number:0>512}") for number in range(5)]
    many = [_note("", f"{number:0>512}") for number in range(33_000)]
    with _listening(uri) as (store, listener):
        store.append_events("agent", run, *events)
        listener.names.clear()
        with pytest.raises(VersionConflict):
            store.append_events("agent", run, *many, expected_version=1)
        assert listener.names.count("find") > 2
        assert store.append_events("agent", run, *reversed(events), expected_version=1).inserted == 0
    assert _refused_once(uri, f"{run} beyond", many, {}).limit == MAX_DOCUMENT_BYTES


# Redactions.


def test_too_long_reason_redacts_no_event(uri: str, run: str) -> None:
    events = [_note("short", "e-1"), *(_note("x" * (3 * MIB), f"e-{number}") for number in range(2, 7))]
    with _listening(uri) as (store, listener):
        store.append_events("agent", run, *events)
        store.append_events("agent", run, _note("alone"))
        listener.names.clear()
        before = store.load_run("agent", run)
        for seqs, reason in (([1], "r" * 2 * MIB), ([1, 7], "r" * 2 * MIB), ([7], "r" * 17 * MIB)):
            with pytest.raises(EventTooLarge, match="shorter reason") as caught:
                store.redact_events("agent", run, seqs, reason=reason)
            assert caught.value.limit == MAX_DOCUMENT_BYTES
        assert not {"insert", "update"} & set(listener.names)
        assert store.load_run("agent", run) == before
        assert store.redact_events("agent", run, [2], reason="r" * 2 * MIB).inserted == 1, (
            "it takes the room of what goes"
        )
        assert store.redact_events("agent", run, [1], reason="fits").inserted == 1
    with open_sync_store(uri) as fresh_store:
        log = fresh_store.load_run("agent", run).log
        assert [type(event.data) for event in log] == [Redacted, Redacted] + 5 * [PlannerNote] + [Redaction, Redaction]
        assert isinstance(log[0].data, Redacted)
        assert log[0].data.reason == "fits"


def _sizes(uri: str, run: str) -> list[int]:
    """Return the sizes of a run's commits."""
    with MongoClient[Document](uri) as client:
        matches = client.get_default_database()["amlog_commits"].find({"run": run}).sort("s", 1)
        return [len(bson.encode(commit)) for commit in matches]


def test_redaction_needs_room_for_its_index_entry(uri: str, run: str) -> None:
    """A tool call has no index entry, but the redacted event has one, which needs space."""
    call = new_event(ToolCall(tool_call_id="c", tool_name="n", payload_json="1"), event_id="e-1")
    with _listening(uri) as (store, listener):
        store.append_events("agent", f"{run} tried", call)
        store.redact_events("agent", f"{run} tried", [1], reason="r")
        room = MAX_DOCUMENT_BYTES - _sizes(uri, f"{run} tried")[0] + len("r tried")
        store.append_events("agent", run, call)
        listener.names.clear()
        with pytest.raises(EventTooLarge, match="shorter reason"):
            store.redact_events("agent", run, [1], reason="r" * (room + 1))
        assert not {"insert", "update"} & set(listener.names)
        assert store.load_run("agent", run).version == 1


def test_too_large_marker_redacts_no_event(uri: str, run: str) -> None:
    with _listening(uri) as (store, listener):
        for run_id in (run, f"{run} tried"):
            for number in range(20):
                store.append_events("agent", run_id, _note("n", f"e-{number:02}"))
        store.redact_events("agent", f"{run} tried", range(1, 21), reason="r")
        *masks, marker = _sizes(uri, f"{run} tried")
        assert max(masks) + len(" tried") < marker
        listener.names.clear()
        with pytest.raises(EventTooLarge, match="marker that names 20 events"):
            store.redact_events("agent", run, range(1, 21), reason="r" * (MAX_DOCUMENT_BYTES - max(masks)))
        assert not {"insert", "update"} & set(listener.names)
        assert store.load_run("agent", run).version == 20


# Replies.


@pytest.fixture(scope="module")
def large(uri: str) -> tuple[str, list[Event]]:
    """Write a run of 20 MiB in four commits, with large messages and small notes. Return its events."""
    events: list[Event] = []
    name = uuid.uuid4().hex
    with open_sync_store(uri) as store:
        for number in range(4):
            part = [_note(f"note {number}"), new_event(AssistantMessage(message=f"{number}" * (5 * MIB)))]
            events.extend(store.append_events("agent", name, *part).events)
    return name, events


def test_run_of_several_replies_loads_completely(uri: str, large: tuple[str, list[Event]]) -> None:
    run, events = large
    with open_sync_store(uri) as store:
        for _ in range(2):
            snapshot = store.load_run("agent", run)
            assert (snapshot.version, snapshot.last_seq) == (8, 8)
            assert list(snapshot.log) == events


def test_parts_of_a_run_of_several_replies_load_completely(uri: str, large: tuple[str, list[Event]]) -> None:
    run, events = large
    with open_sync_store(uri) as store:
        for after in (1, 2, 3):
            assert list(store.load_run("agent", run, after=after).log) == events[after:]
        for limit in (5, 6):
            snapshot = store.load_run("agent", run, after=1, limit=limit)
            assert list(snapshot.log) == events[1 : 1 + limit]
            assert snapshot.last_seq == 1 + limit
        notes, answers = events[::2], events[1::2]
        assert list(store.load_run("agent", run, types=["planner_note"]).log) == notes
        assert list(store.load_run("agent", run, types=["planner_note"], after=1, limit=2).log) == notes[1:3]
        assert list(store.load_run("agent", run, types=["assistant_message"]).log) == answers
        common = store.load_run("agent", run, types=["assistant_message"], after=2, limit=2)
        assert (list(common.log), common.last_seq) == (answers[1:3], 6)
        assert list(store.load_run("agent", run, types=["assistant_message", "planner_note"]).log) == events


def test_run_of_several_replies_can_be_appended_followed_and_retried(uri: str, large: tuple[str, list[Event]]) -> None:
    run, events = large
    with open_sync_store(uri) as store:
        snapshot = store.load_run("agent", run, limit=3)
        snapshot = snapshot.extend(store.load_run("agent", run, after=snapshot.last_seq))
        assert list(snapshot.log) == events
        follower = store.follow("agent", run)
        assert [next(follower) for _ in events] == events
        follower.close()
        for some in (events, events[::-1], events[::2]):
            # The events are appended one by one, because together they exceed one document.
            assert [store.append_events("agent", run, event).inserted for event in some] == [0] * len(some)
        ids = [_note(f"note {number}", event.event_id) for number, event in enumerate(events[::2])]
        assert store.append_events("agent", run, *ids).inserted == 0
        assert store.load_run("agent", run, after=8).version == 8


class ShortReplies(Database[Document]):
    """A database whose replies end after ``most`` documents.

    MongoDB ends a reply before 16 MiB, even if the command asks for a single reply. The server of the tests does not.
    """

    most = 100_000

    def command(  # type: ignore[override]  # the library calls only this overload
        self, command: Any, *arguments: Any, **options: Any
    ) -> Document:
        if "find" in command and "limit" not in command:
            # Without singleBatch, the server keeps a cursor for the rest.
            command = {**command, "limit" if "singleBatch" in command else "batchSize": self.most}
        reply: Document = super().command(command, *arguments, **options)
        if "find" in command and "sort" not in command:
            reply["cursor"]["firstBatch"].reverse()  # no rule gives its order
        return reply


class ShortClient(MongoClient[Document]):
    def __getitem__(self, name: str) -> Database[Document]:
        return ShortReplies(self, name)


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_short_replies_are_combined(mongo_uri: str, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    batches = [[_note(f"{number} {part}") for part in range(1 + number % 3)] for number in range(8)]
    batches[4] = [new_event(AssistantMessage(message="common"), event_id="e-4"), _note("4 1")]
    all_events = [event for batch in batches for event in batch]
    with open_sync_store(mongo_uri) as store:
        for batch in batches:
            store.append_events("agent", "run", *batch, meta={"a": 1})
        expected = _answers(store)
    monkeypatch.setattr(ShortReplies, "most", most)
    for is_warm in (False, True):
        with ShortClient(mongo_uri) as client, SyncMongoStore.open(client, client.get_default_database().name) as store:
            if is_warm:
                store.load_run("agent", "run")
            assert _answers(store) == expected
            result = store.append_events("agent", "run", *all_events)
            assert (result.inserted, len(result.events)) == (0, len(all_events))
            follower = store.follow("agent", "run")
            assert [next(follower).event_id for _ in all_events] == [event.event_id for event in all_events]
            follower.close()


def _answers(store: SyncStore) -> list[object]:
    """Return the results of every kind of read."""
    common, rare = ["assistant_message", "planner_note"], ["planner_note"]
    return [
        *(store.load_run("agent", "run", after=after) for after in range(16)),
        *(store.load_run("agent", "run", after=3, limit=limit) for limit in (1, 4, 20)),
        *(store.load_run("agent", "run", types=types, after=after) for types in (common, rare) for after in (0, 5)),
        *(store.load_run("agent", "run", types=types, limit=5) for types in (common, rare)),
    ]
