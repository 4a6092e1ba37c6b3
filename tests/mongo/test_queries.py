"""Tests that every query uses an index and examines only the documents that it returns.

The tests record the queries of a store, and the server explains them. A real server must also return every document
that it examines, without sorting. The test server examines the whole range and then sorts.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import msgspec
import pytest
from bson.objectid import ObjectId
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from agent_memory_log import Event, PlannerNote, ToolCall, UserMessage, new_event
from agent_memory_log_mongo import SyncMongoStore
from tests.mongo.server import GivenServer, MongoServer

Document = dict[str, Any]

FAR = {"expires_at": "9999-12-31T23:59:59Z"}
OTHERS = 150
SEEKS = ("IXSCAN", "IDHACK")
_OF_THE_STORE = ("find", "aggregate", "update", "insert", "findAndModify", "count", "distinct", "delete")
_NOT_EXPLAINED = ("lsid", "$db", "$clusterTime", "readConcern", "maxTimeMS", "txnNumber")


class StoreCommands(CommandListener):
    """A listener that records the commands on a store's collections."""

    def __init__(self) -> None:
        self.commands: list[Document] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in _OF_THE_STORE:
            self.commands.append(dict(event.command))

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass


class Cost(msgspec.Struct, frozen=True):
    """The server's plan of one query, and the examined keys and documents."""

    query: str
    stages: frozenset[str]
    indexes: frozenset[str]
    keys: int
    documents: int
    returned: int
    ranges: int
    limit: int


def _queries(database: Database[Document], command: Document) -> Iterator[Document]:
    """Return the queries in a command, each as a ``find`` that the server can explain."""
    name = next(iter(command))
    if name == "find":
        yield {key: value for key, value in command.items() if key not in _NOT_EXPLAINED}
    elif name == "update":
        for statement in command["updates"]:
            as_find: Document = {"find": command["update"], "filter": statement["q"]}
            yield as_find | ({"hint": statement["hint"]} if "hint" in statement else {})
    elif name == "aggregate":
        yield from _of_pipeline(database, command["aggregate"], command["pipeline"], {})
    else:
        assert name == "insert", f"a command that no test explains: {command}"


def _of_pipeline(
    database: Database[Document], collection: str, pipeline: list[Document], where: Document
) -> Iterator[Document]:
    """Return a pipeline as a ``find``, and one ``find`` for each of its lookups."""
    query: Document = {"find": collection, "filter": where}
    looked_up: list[Document] = []
    for stage in pipeline:
        ((name, value),) = stage.items()
        if name == "$lookup":
            looked_up.append(value)
        elif name == "$match":
            query["filter"] = query["filter"] | value
        else:
            part = {"$sort": "sort", "$limit": "limit", "$project": "projection"}[name]
            assert part not in query, "a query of another form than this test explains"
            query[part] = value
    yield query
    for lookup in looked_up:
        for document in database.command(query)["cursor"]["firstBatch"]:
            key = {lookup["foreignField"]: document[lookup["localField"]]}
            yield from _of_pipeline(database, lookup["from"], lookup["pipeline"], key)


def _costs(client: MongoClient[Document], database: str, command: Document) -> list[Cost]:
    costs: list[Cost] = []
    for query in _queries(client[database], command):
        plan = client[database].command("explain", query, verbosity="executionStats")
        stats = plan["executionStats"]
        winning = plan["queryPlanner"]["winningPlan"]
        costs.append(
            Cost(
                str(query),
                frozenset(_inside(winning, "stage")),
                frozenset(_inside(winning, "indexName")),
                stats["totalKeysExamined"],
                stats["totalDocsExamined"],
                stats["nReturned"],
                1 + sum(map(len, _inside(query["filter"], "$in"))),
                query.get("limit", 0),
            )
        )
    return costs


def _inside(value: Any, field: str) -> Iterator[Any]:
    """Yield all values of ``field`` at any depth."""
    if isinstance(value, dict):
        for name, inner in cast("Document", value).items():
            if name == field:
                yield inner
            yield from _inside(inner, field)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _inside(item, field)


# Each call is made by a new handle and by a handle that has read the run.

CALLS: dict[str, Callable[[SyncMongoStore, str], object]] = {
    "load": lambda store, agent: store.load_run(agent, "run"),
    "load after": lambda store, agent: store.load_run(agent, "run", after=7),
    "load limited": lambda store, agent: store.load_run(agent, "run", limit=2),
    "load the middle": lambda store, agent: store.load_run(agent, "run", after=3, limit=1),
    "load rare types": lambda store, agent: store.load_run(
        agent, "run", types=["planner_note", "user_message"], limit=1
    ),
    "load common types": lambda store, agent: store.load_run(agent, "run", types=["tool_call", "planner_note"]),
    "load nothing": lambda store, agent: store.load_run(agent, "unknown"),
    "load no types": lambda store, agent: store.load_run(agent, "run", types=["thinking", "later"], after=2),
    "load last": lambda store, agent: store.load_run(agent, "run", last=4),
    "load last rare types": lambda store, agent: store.load_run(
        agent, "run", types=["planner_note", "user_message"], last=2
    ),
    "load last common types": lambda store, agent: store.load_run(
        agent, "run", types=["tool_call", "planner_note"], last=3
    ),
    "find": lambda store, agent: store.find_events(agent, "run", ["e-7", "unknown", "e-2"]),
    "find nothing": lambda store, agent: store.find_events(agent, "unknown", ["e-1"]),
    "follow": lambda store, agent: [
        event for event, _ in zip(store.follow(agent, "run", after=2), range(3), strict=False)
    ],
    "peek": lambda store, agent: store.peek_runs([(agent, run) for run in ("run", "other", "unknown", "ends")]),
    "list": lambda store, _: store.list_runs(),
    "list agent": lambda store, agent: store.list_runs(agent, limit=2),
    "list next": lambda store, _: store.list_runs(limit=1, cursor=store.list_runs(limit=1).cursor),
    "list agent next": lambda store, agent: store.list_runs(agent, cursor=store.list_runs(agent, limit=1).cursor),
    "list nobody": lambda store, _: store.list_runs("nobody"),
    "head": lambda store, agent: store.append_events(agent, "run"),
    "append": lambda store, agent: store.append_events(agent, "run", _note()),
    "append again": lambda store, agent: store.append_events(agent, "run", _note("e-1"), _note("e-4"), _note("e-7")),
    "append expecting": lambda store, agent: store.append_events(agent, "run", _note(), expected_version=9),
    "append a retry": lambda store, agent: store.append_events(agent, "run", _note("e-7"), expected_version=8),
    "append elsewhere": lambda store, agent: store.append_events(agent, "new", _note()),
    "append with an end": lambda store, agent: store.append_events(agent, "ends", _note(), _note()),
    "append at a seq": lambda store, agent: store.append_events(agent, "at", _note(), first_seq=10),
    "redact": lambda store, agent: store.redact_events(agent, "run", [1, 9]),
    "delete": lambda store, agent: store.delete_run(agent, "run"),
    "delete nothing": lambda store, agent: store.delete_run(agent, "unknown"),
    "expire": lambda store, _: store.expire_runs(),
    "expire dry": lambda store, _: store.expire_runs(dry_run=True),
}
LISTS_ALL: dict[str, Callable[[SyncMongoStore, str], object]] = {
    "list reserved": lambda store, _: store.list_runs(include_reserved=True, limit=3),
    "list others": lambda store, _: store.list_runs("@others", limit=3),
    "list others next": lambda store, _: store.list_runs(
        "@others", limit=3, cursor=store.list_runs("@others", limit=60).cursor
    ),
}


def _note(event_id: str | None = None) -> Event:
    return new_event(PlannerNote(note="n"), event_id=event_id)


@contextmanager
def _listening(server: MongoServer | GivenServer, database: str) -> Generator[tuple[SyncMongoStore, StoreCommands]]:
    listener = StoreCommands()
    with (
        MongoClient[Document](server.uri(database), event_listeners=[listener]) as client,
        SyncMongoStore.open(client, database) as store,
    ):
        yield store, listener


def _fill(store: SyncMongoStore, agent: str) -> None:
    """Runs of an agent: one of three commits of an event of each type, one that is short, one with an end."""
    for number in range(0, 9, 3):
        store.append_events(
            agent,
            "run",
            _note(f"e-{number + 1}"),
            new_event(UserMessage(message="m"), event_id=f"e-{number + 2}"),
            new_event(ToolCall("tc", "t"), event_id=f"e-{number + 3}"),
        )
    store.append_events(agent, "other", _note("e-1"), new_event(UserMessage(message="m"), event_id="e-2"))
    store.append_events(agent, "ends", _note("e-1"), meta=FAR)


def _fill_others(client: MongoClient[Document], database: str) -> None:
    """Write ``OTHERS`` runs of an unrelated agent, each with an event of each type and an end."""
    with SyncMongoStore.open(client, database) as store:
        events = (_note("e-1"), new_event(UserMessage(message="m"), event_id="e-2"), new_event(ToolCall("tc", "t")))
        store.append_events("@others", "0", *events, meta=FAR, reserved=True)
    commits, runs = client[database]["amlog_commits"], client[database]["amlog_runs"]
    commit, run = commits.find_one({"agent": "@others"}), runs.find_one({"agent": "@others"})
    assert commit is not None
    assert run is not None
    types = [entry.partition(":")[2] for entry in commit["t"]]
    keys = [uuid.uuid4().bytes for _ in range(OTHERS)]
    commits.insert_many(
        commit | {"_id": ObjectId(), "k": key, "t": [f"{key.hex()}:{entry}" for entry in types]} for key in keys
    )
    runs.insert_many(run | {"_id": key, "order": f"{run['order'].partition('-')[0]}-{key[:7].hex()}"} for key in keys)


def _drop(server: MongoServer | GivenServer, *databases: str) -> None:
    if isinstance(server, MongoServer):
        return  # its data goes with it, and dropping large databases is slow
    with server.client() as client:
        for database in databases:
            client.drop_database(database)


@pytest.fixture(scope="module")
def databases(mongo_server: MongoServer | GivenServer) -> Generator[tuple[str, str]]:
    """Return two databases with the same runs; the second has many more runs."""
    few, many = (f"amlog_test_{uuid.uuid4().hex}" for _ in range(2))
    with mongo_server.client() as client:
        _fill_others(client, many)
        yield few, many
        _drop(mongo_server, few, many)


@pytest.fixture(scope="module")
def strict(mongo_server: MongoServer | GivenServer) -> bool:
    """Return whether the server's plans are like MongoDB's."""
    with mongo_server.client() as client:
        return "secantusVersion" not in client.admin.command("buildInfo")


def _cost_of(
    server: MongoServer | GivenServer, database: str, call: Callable[[SyncMongoStore, str], object], *, warm: bool
) -> list[Cost]:
    agent = f"{'warm' if warm else 'cold'} {id(call)}"
    with _listening(server, database) as (store, listener):
        _fill(store, agent)
    with _listening(server, database) as (store, listener):
        if warm:
            for run in ("run", "ends"):
                store.load_run(agent, run)
        listener.commands.clear()
        call(store, agent)
        sent = list(listener.commands)
    assert sent
    with server.client() as client:
        return [cost for command in sent for cost in _costs(client, database, command)]


def _check(costs: list[Cost], *, strict: bool) -> None:
    for cost in costs:
        assert cost.indexes or cost.stages & {"IDHACK", "EXPRESS_IDHACK"}, f"no index: {cost}"
        assert any(stage.endswith(SEEKS) for stage in cost.stages), f"no seek: {cost}"
        assert "COLLSCAN" not in cost.stages, f"a scan of the collection: {cost}"
        if strict:
            assert not any("SORT" in stage for stage in cost.stages), f"sorted in memory: {cost}"
            assert cost.documents <= cost.returned + 1, f"examined what it does not return: {cost}"
            assert cost.keys <= cost.returned + cost.ranges, f"examined keys of what it does not return: {cost}"


@pytest.mark.parametrize("call", CALLS)
def test_every_query_uses_an_index_with_tight_bounds(
    mongo_server: MongoServer | GivenServer, databases: tuple[str, str], strict: bool, call: str
) -> None:
    for warm in (False, True):
        few, many = (_cost_of(mongo_server, database, CALLS[call], warm=warm) for database in databases)
        _check(many, strict=strict)
        counted = [[(cost.stages, cost.indexes, cost.keys, cost.documents) for cost in costs] for costs in (few, many)]
        assert counted[0] == counted[1], "it grows with runs that it does not ask for"


@pytest.mark.parametrize("call", LISTS_ALL)
def test_lists_use_an_index(
    mongo_server: MongoServer | GivenServer, databases: tuple[str, str], strict: bool, call: str
) -> None:
    costs = _cost_of(mongo_server, databases[1], LISTS_ALL[call], warm=False)
    _check(costs, strict=strict)
    assert max(cost.keys for cost in costs) >= 3


# Costs in a long run.

LONG = 2_000


@pytest.fixture(scope="module")
def long_run(mongo_server: MongoServer | GivenServer) -> Generator[str]:
    """Return a database with a run of 2,000 commits: a planner note in every hundredth, else tool calls."""
    name = f"amlog_test_{uuid.uuid4().hex}"
    with mongo_server.client() as client, SyncMongoStore.open(client, name) as store:
        store.append_events("agent", "run", new_event(ToolCall("tc", "t"), event_id="e-1"), meta={"a": 1})
        store.append_events("agent", "sample", _note("e-0"))
        commits = client[name]["amlog_commits"]
        plain, rare = commits.find_one({"run": "run"}), commits.find_one({"run": "sample"})
        assert plain is not None
        assert rare is not None
        del plain["meta"]
        rare["t"] = [f"{plain['k'].hex()}:planner_note"]
        documents: list[Document] = []
        for seq in range(2, LONG + 1):
            sample: Document = plain
            if seq % 100 == 0:
                sample = rare | {key: plain[key] for key in ("k", "agent", "run", "c")} | {"ts": seq}
            event: Document = sample["events"][0] | {"id": f"e-{seq}"}
            documents.append(sample | {"_id": ObjectId(), "s": seq, "v": seq, "events": [event]})
        commits.insert_many(documents)
        yield name
        _drop(mongo_server, name)


def _documents(
    server: MongoServer | GivenServer, database: str, listener: StoreCommands, *, strict: bool = True
) -> int:
    """Return the number of documents that the server examined for the recorded commands.

    Where it is not ``strict``, a query with a limit counts as if the order of its index had been used.
    """
    sent, listener.commands = listener.commands, []
    with server.client() as client:
        costs = [cost for command in sent for cost in _costs(client, database, command)]
    return sum(min(cost.documents, cost.limit) if cost.limit and not strict else cost.documents for cost in costs)


WARM_READS: dict[str, tuple[Callable[[SyncMongoStore], object], int]] = {
    "the middle": (lambda store: store.load_run("agent", "run", after=1000, limit=10), 13),
    "the beginning": (lambda store: store.load_run("agent", "run", limit=1), 4),
    "a rare type": (lambda store: store.load_run("agent", "run", types=["planner_note"]), 25),
    "a rare type from the end": (lambda store: store.load_run("agent", "run", types=["planner_note"], after=1950), 6),
    "a type that is not there": (lambda store: store.load_run("agent", "run", types=["annotation"]), 5),
    "a common type from the end": (lambda store: store.load_run("agent", "run", types=["tool_call"], after=1990), 14),
    "the end": (lambda store: store.load_run("agent", "run", last=10), 12),
    "the end of a rare type": (lambda store: store.load_run("agent", "run", types=["planner_note"], last=2), 9),
    "the end of two types": (
        lambda store: store.load_run("agent", "run", types=["planner_note", "annotation"], last=2),
        9,
    ),
    "the end of a common type": (lambda store: store.load_run("agent", "run", types=["tool_call"], last=10), 45),
    "events by id": (lambda store: store.find_events("agent", "run", ["e-1000", "e-7", "unknown"]), 4),
    "a retry": (lambda store: store.append_events("agent", "run", *store.load_run("agent", "run", limit=1).log), 8),
    "the list": (lambda store: store.list_runs(), 5),
}


@pytest.mark.parametrize("read", WARM_READS)
def test_read_examines_only_the_returned_documents(
    mongo_server: MongoServer | GivenServer, long_run: str, strict: bool, read: str
) -> None:
    call, most = WARM_READS[read]
    with _listening(mongo_server, long_run) as (store, listener):
        assert store.load_run("agent", "run").version == LONG
        assert store.load_run("agent", "sample").version == 1
        listener.commands.clear()
        call(store)
        assert 0 < _documents(mongo_server, long_run, listener, strict=strict) <= most


def test_warm_handle_reads_only_new_commits(mongo_server: MongoServer | GivenServer, long_run: str) -> None:
    with _listening(mongo_server, long_run) as (store, listener):
        store.load_run("agent", "run")
        listener.commands.clear()
        assert [event.seq for event in store.load_run("agent", "run", after=LONG - 1).log] == [LONG]
        assert 0 < _documents(mongo_server, long_run, listener) <= 3
        assert not store.load_run("agent", "run", after=LONG).log
        assert 0 < _documents(mongo_server, long_run, listener) <= 2


def test_follower_examines_only_its_events(mongo_server: MongoServer | GivenServer, long_run: str) -> None:
    with _listening(mongo_server, long_run) as (store, listener):
        store.load_run("agent", "run")
        listener.commands.clear()
        follower = store.follow("agent", "run", after=LONG - 5)
        assert [next(follower).seq for _ in range(5)] == list(range(LONG - 4, LONG + 1))
        follower.close()
        assert _documents(mongo_server, long_run, listener) <= 12


def test_new_handle_reads_only_the_newest_commit(
    mongo_server: MongoServer | GivenServer, long_run: str, strict: bool
) -> None:
    """The query of a new handle has a limit of one, so a real server examines one key."""
    with _listening(mongo_server, long_run) as (store, listener):
        listener.commands.clear()
        assert len(store.load_run("agent", "run", after=LONG - 1).log) == 1
        sent = list(listener.commands)
        if strict:
            assert _documents(mongo_server, long_run, listener) <= 3
        unlimited = [command for command in sent if command.get("limit") != 1]
        assert [command["filter"]["s"] for command in unlimited] == [{"$gte": LONG}]


def test_a_load_of_new_events_sends_one_query(mongo_server: MongoServer | GivenServer, long_run: str) -> None:
    with _listening(mongo_server, long_run) as (store, listener):
        for after in (0, LONG - 1, LONG - 1, 0):
            listener.commands.clear()
            assert store.load_run("agent", "run", after=after).version == LONG
            assert len(listener.commands) == 1
        store.load_run("agent", "run", after=LONG)
        assert len(listener.commands) == 2
