"""Tests that each operation over HTTP gives the result of a local call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from agent_memory_log import Snapshot, Store, SyncStore, open_sync_store
from agent_memory_log.errors import AgentMemoryLogError, VersionConflict
from agent_memory_log.memory import MemoryClient, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.memory.operations import METHODS, ListRecords, Remember
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.grants import RIGHTS, Grant
from agent_memory_log.service.server import Limits
from agent_memory_log.service.store_operations import (
    STORE_METHODS,
    AppendEvents,
    DeleteRun,
    ExpireRuns,
    FindEvents,
    ListRuns,
    LoadRun,
    PeekRuns,
    ReadErasures,
    RedactEvents,
    execute_on_store,
)
from agent_memory_log.service.wire import encode_operation, encode_result
from agent_memory_log.steps import run_sync
from agent_memory_log_inmem import MemoryStore
from tests.memory.test_operations import VALID, without_ids
from tests.service.serving import PRINCIPAL, Serving, message, serving

EVENTS = tuple(message(f"e{number}", f"hello {number}") for number in range(5))

RUNS: list[Operation[Any]] = [
    AppendEvents("a", "r", EVENTS, meta={"goal": "help"}),
    AppendEvents("a", "r", (*EVENTS[:2], message("e5"))),
    AppendEvents("b", "r", EVENTS[:2]),
    AppendEvents("a", "r", EVENTS, expected_version=99),
    AppendEvents("a", "r", (message("new"),), expected_version=99),
    AppendEvents("a", "r", (message("e0", "another text"),)),
    AppendEvents("@a", "r", EVENTS),
    AppendEvents("", "r", EVENTS),
    LoadRun("a", "r"),
    LoadRun("a", "r", after=2, limit=2),
    LoadRun("a", "r", types=("planner_note",)),
    LoadRun("a", "r", last=3),
    LoadRun("a", "r", limit=0),
    LoadRun("a", "r", limit=1, last=1),
    LoadRun("a", "r", after=99),
    LoadRun("unknown", "r"),
    FindEvents("a", "r", ("e3", "unknown", "e3")),
    FindEvents("a", "r", ()),
    FindEvents("a", "r", ("",)),
    ListRuns(limit=1),
    ListRuns("a"),
    ListRuns(cursor="x"),
    PeekRuns((("a", "r"), ("unknown", "r"))),
    PeekRuns(()),
    RedactEvents("a", "r", (2, 4), reason="asked"),
    RedactEvents("a", "r", (99,)),
    LoadRun("a", "r"),
    DeleteRun("b", "r"),
    ReadErasures(),
    ReadErasures(after=1, limit=1),
    ReadErasures(runs=(("b", "r"),)),
    ReadErasures(runs=()),
    ReadErasures(after=99),
    ExpireRuns(dry_run=True),
]
"""A sequence of operations. Each has the same result, or the same error, in two stores that carried out all before."""


@pytest.fixture(scope="module")
def server() -> Generator[Serving]:
    with serving(memory=lambda store: MemoryClient(store, extractor=RuleExtractor())) as server:
        yield server


def test_operations_of_runs_have_the_results_of_local_calls() -> None:
    assert {type(operation) for operation in RUNS} == {cls for cls in STORE_METHODS.values() if not cls.stream}
    with serving() as server, open_sync_store("memory:") as store:
        for operation in RUNS:
            assert _remote(server, operation) == _local(store, operation), operation


def _remote(server: Serving, operation: Operation[Any]) -> object:
    try:
        return _comparable(operation, server.call(operation))
    except AgentMemoryLogError as error:
        return type(error), str(error), vars(error)


def _local(store: SyncStore, operation: Operation[Any]) -> object:
    try:
        return _comparable(operation, run_sync(execute_on_store(operation), store))
    except AgentMemoryLogError as error:
        return type(error), str(error), vars(error)


def _comparable(operation: Operation[Any], result: Any) -> str:
    """Return a result as text, without the ids, times and cursors that a store makes."""
    text = repr(encode_result(type(operation), result))
    return re.sub(r"'cursor': '.*?'", "CURSOR", _TIME.sub("TIME", _ID.sub("ID", text)))


@pytest.mark.parametrize("name", METHODS)
def test_operations_of_memory_have_the_results_of_local_calls(name: str) -> None:
    operation = METHODS[name](**VALID.get(name, {}))
    first = Remember(key="color", value="green")
    with serving(memory=lambda store: MemoryClient(store, extractor=RuleExtractor())) as server:
        server.call(first)
        remote = _text_of(lambda: server.call(operation))
    with open_sync_store("memory:") as store:
        memory = SyncMemoryClient(store, extractor=RuleExtractor()).of(PRINCIPAL)
        memory.execute(first)
        assert remote == _text_of(lambda: memory.execute(operation))


def _text_of(call: Any) -> str:
    try:
        result = call()
    except AgentMemoryLogError as error:
        return repr((type(error), str(error), vars(error)))
    # Lines of an export have ids and times, and a context has ids.
    return (
        repr(result.count(b"\n"))
        if isinstance(result, bytes)
        else _CLOCK.sub("TIME", _ID.sub("ID", without_ids(result)))
    )


_ID = re.compile(r"[\w-]{12}[0-9a-f]{6}")
_CLOCK = re.compile(r"datetime\.datetime\([\d, ]+tzinfo=[\w.]+\)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


def test_pages_together_are_the_whole_run() -> None:
    """Read a run whose events are too many for one page, and too large for another, as pages of any size."""
    limits = Limits(page_events=100, page_bytes=20_000, rate=10_000, burst=10_000)
    with serving(limits=limits) as server:
        small = [message(f"s{number}") for number in range(250)]
        large = [message(f"l{number}", "x" * 9_000) for number in range(30)]
        server.call(AppendEvents("a", "r", (*small, *large, *small[:1], message("end"))))
        server.call(RedactEvents("a", "r", (3, 260), reason="asked"))
        complete = asyncio.run_coroutine_threadsafe(server.store.load_run("a", "r"), server.loop).result()
        for types in (None, ("redaction",), ("user_message",)):
            snapshot = server.call(LoadRun("a", "r", types=types))
            sizes = [len(snapshot.log)]
            while snapshot.last_seq < snapshot.version:
                page = server.call(LoadRun("a", "r", after=snapshot.last_seq, types=types))
                assert page.last_seq > snapshot.last_seq
                sizes.append(len(page.log))
                snapshot = snapshot.extend(page)
            assert max(sizes) <= 100
            assert list(snapshot.log) == [event for event in complete.log if types is None or event.type in types]
            assert types is not None or len(sizes) >= 12  # 2 pages of small events, 10 of three large ones each
            assert snapshot.redactions == complete.redactions
        newest = server.call(LoadRun("a", "r", last=20))
        assert newest.last_seq < newest.version
        assert newest.log[0].seq == complete.version - 19


def test_an_append_between_two_reads_of_a_page_does_not_change_the_page() -> None:
    class Busy(MemoryStore):
        """A store to which another writer appends after each read."""

        async def load_run(self, *arguments: Any, **options: Any) -> Snapshot:
            snapshot = await super().load_run(*arguments, **options)
            await self.redact_events("a", "r", [1])
            return snapshot

    @asynccontextmanager
    async def opening() -> AsyncGenerator[Store]:
        async with Busy() as store:
            await store.append_events("a", "r", *(message(f"e{number}") for number in range(200)))
            yield store

    with serving(opening) as server:
        page = server.call(LoadRun("a", "r"))
        assert (page.version, page.last_seq) == (200, 64)
        assert page.log[0].type == "user_message"


def test_answers_that_have_no_pages_are_refused_if_they_are_too_large() -> None:
    limits = Limits(page_events=10, page_bytes=10_000, answer_bytes=2_000)
    with serving(limits=limits) as server:
        server.call(AppendEvents("a", "r", tuple(message(f"e{number}", "x" * 900) for number in range(9))))
        server.call(AppendEvents("a", "big", (message("e", "x" * 20_000),)))
        with pytest.raises(AgentMemoryLogError, match="at most 10 on a server"):
            server.call(FindEvents("a", "r", ("e0",) * 11))
        with pytest.raises(AgentMemoryLogError, match="more than 10,000 bytes: ask for a part"):
            server.call(FindEvents("a", "r", tuple(f"e{number % 9}" for number in range(10))))
        for number in range(9, 12):
            server.call(AppendEvents("a", "r", (message(f"e{number}"),)))
        with pytest.raises(AgentMemoryLogError, match="last must be at most 10"):
            server.call(LoadRun("a", "r", last=11))
        with pytest.raises(AgentMemoryLogError, match="runs must be at most 10,000"):
            server.call(PeekRuns((("a", "r"),) * 10_001))
        # One event is as large as it is.
        (only,) = server.call(FindEvents("a", "big", ("e",)))
        assert len(only.data.message) == 20_000


def test_a_text_is_as_long_as_the_server_allows() -> None:
    with serving(limits=Limits(answer_bytes=1_000)) as server:
        server.call(Remember(key="long", value="x" * 1_000))
        with pytest.raises(AgentMemoryLogError, match="the server's limit is 1,000: ask for less"):
            server.call(ListRecords())


def test_a_run_is_listed_in_pages_of_the_callers_agents() -> None:
    class Support:
        async def grant_of(self, authorization: str | None) -> Grant:
            assert authorization is None
            return Grant("support", frozenset(RIGHTS), None, ("support-*",))

    async def fill(store: Store) -> None:
        for number in range(40):
            await store.append_events(f"{'support' if number % 4 == 0 else 'other'}-{number}", "r", EVENTS[0])
        for number in range(4):
            await store.delete_run(f"{'support' if number % 4 == 0 else 'other'}-{number}", "r")

    with serving(limits=Limits(page_events=8), callers=Support()) as server:
        asyncio.run_coroutine_threadsafe(fill(server.store), server.loop).result()
        agents: list[str] = []
        page = server.call(ListRuns(limit=3))
        sizes = [len(page.runs)]
        while page.cursor is not None:
            agents += [info.agent for info in page.runs]
            page = server.call(ListRuns(limit=3, cursor=page.cursor))
            sizes.append(len(page.runs))
        agents += [info.agent for info in page.runs]
        assert agents == [f"support-{number}" for number in range(36, 3, -4)]
        assert max(sizes) <= 3
        erasures = server.call(ReadErasures())
        assert [entry.agent for entry in erasures.entries] == ["support-0"]
        assert erasures.position == 4


def test_a_principal_header_narrows_the_caller_and_never_widens_it(server: Serving) -> None:
    body = encode_operation(Remember(key="language", value="english"))
    own = msgspec.json.encode({"tenant": "acme", "scopes": {"user": "1"}}).decode()
    other = msgspec.json.encode({"tenant": "acme", "scopes": {"user": "2"}}).decode()
    assert server.post("memory/remember", body, amlog_principal=own).status == 200
    assert server.post("memory/remember", body, amlog_principal=other).status == 403
    for invalid in (
        "",
        "{}",
        "[]",
        "{" * 10_000,
        '{"tenant": 1, "scopes": {}}',
        '{"tenant": "a", "scopes": {}, "x": 1}',
    ):
        answer = server.post("memory/remember", body, amlog_principal=invalid)
        assert (answer.status, answer.json["code"]) == (422, "invalid_argument"), invalid


def test_an_error_keeps_its_attributes(server: Serving) -> None:
    server.call(AppendEvents("a", "conflict", EVENTS))
    with pytest.raises(VersionConflict) as caught:
        server.call(AppendEvents("a", "conflict", (message("x"),), expected_version=3))
    assert (caught.value.expected, caught.value.actual) == (3, 5)
