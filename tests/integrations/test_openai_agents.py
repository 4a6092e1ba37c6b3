from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from agents import Agent, RunConfig, Runner, SQLiteSession
from agents.testing import ScriptedModel, assistant_message, function_call
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_memory_log import Compaction, SyncStore, ToolResult, open_sync_store
from agent_memory_log.errors import InvalidArgument, InvalidEvent, StoreClosed
from agent_memory_log.integrations.openai_agents import MemoryLogSession, memory_tool
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.transcript import build, validate
from tests.integrations.at_once import NAMES, at_once
from tests.processes import PATIENCE, ROOT, last_number_of
from tests.transcript.transcripts_openai_responses import CASE

Item = Any  # the SDK's union of items is too large for plain maps

CALL: Item = {"type": "function_call", "call_id": "c1", "name": "find--order", "arguments": '{"n":1}'}
OUTPUT: Item = {"type": "function_call_output", "call_id": "c1", "output": "sent"}
SHELL: list[Item] = [
    {"type": "shell_call", "call_id": "s1", "action": {"commands": ["ls"]}},
    {
        "type": "shell_call_output",
        "call_id": "s1",
        "output": [{"stdout": "x", "stderr": "", "outcome": {"type": "timeout"}}],
    },
]
HOSTILE = ("a", "a/b", "a%2Fb", "a%", "@memory", "' or 1=1 --", "\x00", "x" * 513, "x" * 514, "session", "\U0001f600")


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.integrations.session_programs", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def has_three(item: Item) -> bool:
    return "3" in str(item)


def says(text: str) -> Item:
    return {"role": "user", "content": text}


@pytest.fixture
def session(url: str) -> Any:
    with MemoryLogSession("chat-1", url) as opened:
        yield opened


class SessionMachine(RuleBasedStateMachine):
    """Compares sessions, in memory and on SQLite, with the SDK's own session in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.url = f"sqlite:///{self.folder.name}/runs.db?durability=os"
        self.loop = asyncio.Runner()
        self.reference: Any = SQLiteSession("chat")
        self.sessions: list[Any] = [MemoryLogSession("chat", "memory:"), MemoryLogSession("chat", self.url)]
        self.count = 0

    def teardown(self) -> None:
        for session in (self.reference, *self.sessions):
            session.close()
        self.loop.close()
        self.folder.cleanup()

    def all(self, call: str, *arguments: Any) -> Any:
        """Call a method of each session, and return the result, which must be the reference's."""
        expected = self.loop.run(getattr(self.reference, call)(*arguments))
        for session in self.sessions:
            assert self.loop.run(getattr(session, call)(*arguments)) == expected
        return expected

    @rule(kinds=st.lists(st.sampled_from(["message", "call", "shell", "surrogate"]), max_size=3))
    def add(self, kinds: list[str]) -> None:
        items: list[Item] = []
        for kind in kinds:
            self.count += 1
            items += {
                "message": [says(f"message {self.count}")],
                "call": [CALL, OUTPUT],
                "shell": SHELL,
                "surrogate": [says(f"\ud800 {self.count}")],
            }[kind]
        self.all("add_items", items)

    @rule(limit=st.integers(0, 6))
    def get(self, limit: int) -> None:
        self.all("get_items", limit)

    @rule()
    def pop(self) -> None:
        self.all("pop_item")

    @rule()
    def clear(self) -> None:
        self.all("clear_session")

    @rule(limit=st.integers(1, 6), start=st.integers(0, 6), length=st.integers(0, 2), prune=st.booleans())
    def replace_suffix(self, limit: int, start: int, length: int, prune: bool) -> None:  # Hypothesis passes it
        self.count += 1
        output = [says(f"compacted {self.count} {index}") for index in range(length)]

        async def replace(session: Any) -> object:
            snapshot = await session._get_compaction_snapshot(limit, prune_prefix=has_three if prune else None)
            items, complete = snapshot.items, snapshot.complete
            return items, complete, await snapshot.replace_suffix(start, output)

        expected = self.loop.run(replace(self.reference))
        for session in self.sessions:
            assert self.loop.run(replace(session)) == expected

    @rule()
    def replace_all(self) -> None:
        self.count += 1
        output = [says(f"compacted {self.count}"), OUTPUT]
        self.loop.run(self.reference.clear_session())
        self.loop.run(self.reference.add_items(output))
        for session in self.sessions:
            assert self.loop.run(session._atomic_replace_items(output))

    @rule()
    def open_again(self) -> None:
        self.sessions[1].close()
        self.sessions[1] = MemoryLogSession("chat", self.url)

    @invariant()
    def items_are_equal(self) -> None:
        self.all("get_items")


SessionMachine.TestCase.settings = settings(stateful_step_count=25)
TestSessionMachine = SessionMachine.TestCase


async def test_compaction_knows_that_it_reads_all_items(session: MemoryLogSession) -> None:
    await session._atomic_replace_items([says("first")])
    await session.pop_item()
    await session.add_items([says("second"), says("third")])
    for limit, complete in ((1, False), (2, True), (3, True)):
        snapshot = await session._get_compaction_snapshot(limit)
        assert snapshot is not None
        assert (len(snapshot.items), snapshot.complete) == (min(limit, 2), complete)


async def _assert_every_limit(session: MemoryLogSession, items: list[Item]) -> None:
    await session.add_items(items)
    assert await session.get_items() == items
    for limit in range(1, len(items) + 2):
        assert await session.get_items(limit) == items[-limit:]


@pytest.mark.parametrize("name", [*CASE.conversations, *CASE.valid])
async def test_items_come_back_with_every_limit(session: MemoryLogSession, name: str) -> None:
    items: list[Item] = {**CASE.conversations, **CASE.valid}[name]
    await _assert_every_limit(session, items)


@given(CASE.hostile)
def test_any_maps_come_back_with_every_limit(items: list[Item]) -> None:
    with MemoryLogSession("chat", "memory:") as session:
        asyncio.run(_assert_every_limit(session, items))


async def test_run_is_a_transcript(session: MemoryLogSession) -> None:
    items: list[Item] = [
        says("Where is my order?"),
        CALL,
        OUTPUT,
        *SHELL,
        {"role": "assistant", "content": "On its way."},
    ]
    for item in items:
        await session.add_items([item])
    transcript = build(session.store.load_run("openai-agents", "chat-1"), "openai-responses")
    assert transcript == items
    assert validate(transcript, "openai-responses") == []


async def test_result_has_the_name_of_the_tool_that_an_earlier_append_called(session: MemoryLogSession) -> None:
    await session.add_items([CALL])
    await session.add_items([OUTPUT])
    result = session.store.load_run(session.agent, session.run).log[1].data
    assert isinstance(result, ToolResult)
    assert result.tool_name == "find.order"


async def test_memory_learns_from_a_session(session: MemoryLogSession) -> None:
    for text in ("Call me Kim.", "Where is my order?"):
        await session.add_items([says(text), {"role": "assistant", "content": "One moment."}])
    memory = SyncMemoryClient(session.store).of(Principal(tenant="acme", scopes={"user": "42"}))
    memory.derive(session.agent, session.run, extractor=RuleExtractor())
    assert [record.evidence[0].run for record in memory.list()] == ["chat-1"]
    await session.clear_session()
    assert memory.list() == ()


async def test_agent_looks_into_memory(session: MemoryLogSession) -> None:
    memory = SyncMemoryClient(session.store).of(Principal(tenant="acme", scopes={"user": "42"}))
    memory.remember(key="units", value="metric")
    model = ScriptedModel(
        [[function_call("search_memory", {"query": "units"}, call_id="c1")], [assistant_message("metric")]]
    )
    agent = Agent(name="assistant", model=model, tools=[memory_tool(memory)])
    result = await Runner.run(agent, "Which units?", session=session, run_config=RunConfig(tracing_disabled=True))
    assert result.final_output == "metric"
    items: list[Item] = list(await session.get_items())
    assert [item.get("type", "message") for item in items] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert "metric" in items[2]["output"]


def test_sessions_with_different_ids_share_nothing() -> None:
    with open_sync_store("memory:") as store:
        sessions = [MemoryLogSession(session_id, store) for session_id in HOSTILE]
        for session in sessions:
            asyncio.run(session.add_items([says(session.session_id)]))
        for session in sessions:
            assert asyncio.run(session.get_items()) == [says(session.session_id)]


@pytest.mark.parametrize("session_id", ["", None, 1])
def test_session_needs_an_id(session_id: Any) -> None:
    with pytest.raises(InvalidArgument, match="session_id must be text that is not empty"):
        MemoryLogSession(session_id, "memory:")


async def test_id_with_a_lone_surrogate_is_refused(session: MemoryLogSession) -> None:
    with pytest.raises(InvalidEvent):
        await MemoryLogSession("\ud800", session.store).add_items([says("hello")])


async def test_item_that_is_no_json_is_refused_with_its_batch(session: MemoryLogSession) -> None:
    with pytest.raises(InvalidArgument, match="an item of a session must be JSON"):
        await session.add_items([says("hello"), says(cast("Any", object()))])
    assert await session.get_items() == []


async def test_closed_session_refuses_calls(session: MemoryLogSession) -> None:
    session.close()
    with pytest.raises(StoreClosed):
        await session.get_items()
    with pytest.raises(StoreClosed):
        await session.add_items([])


async def test_removed_items_stay_in_the_log(session: MemoryLogSession) -> None:
    await session.add_items([says("first"), says("second")])
    await session.pop_item()
    await session._atomic_replace_items([says("short")])
    types = [event.type for event in session.store.load_run(session.agent, session.run).log]
    assert types == ["user_message", "user_message", "openai-agents.items_removed", "compaction"]


async def test_compaction_is_what_a_transcript_begins_with(session: MemoryLogSession) -> None:
    await session.add_items([says("first"), says("second")])
    await session._atomic_replace_items([says("short")])
    await session.add_items([says("third")])
    snapshot = session.store.load_run(session.agent, session.run)
    assert isinstance(snapshot.log[2].data, Compaction)
    assert build(snapshot, "openai-responses") == [says("short"), says("third")] == await session.get_items()


def test_concurrent_pops_return_every_item_once(session: MemoryLogSession) -> None:
    items = [says(str(number)) for number in range(40)]
    asyncio.run(session.add_items(items))
    barrier = threading.Barrier(4)

    def pop_all() -> list[Item]:
        barrier.wait(PATIENCE)
        return asyncio.run(_pop_all(session))

    with ThreadPoolExecutor(4) as pool:
        popped = [item for future in [pool.submit(pop_all) for _ in range(4)] for item in future.result()]
    assert sorted(popped, key=str) == sorted(items, key=str)


async def _pop_all(session: MemoryLogSession) -> list[Item]:
    popped: list[Item] = []
    while (item := await session.pop_item()) is not None:
        popped.append(item)
    return popped


class SlowStore:
    """A store whose appends wait until the test sets ``released``."""

    def __init__(self, store: SyncStore) -> None:
        self.store = store
        self.entered = threading.Event()
        self.released = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def append_events(self, *arguments: Any, **options: Any) -> Any:
        self.entered.set()
        assert self.released.wait(PATIENCE)
        return self.store.append_events(*arguments, **options)


async def test_cancelled_call_ends_after_its_write() -> None:
    with open_sync_store("memory:") as store:
        slow = SlowStore(store)
        session = MemoryLogSession("chat", cast("Any", slow))
        task = asyncio.create_task(session.add_items([says("hello")]))
        await asyncio.to_thread(slow.entered.wait, PATIENCE)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        slow.released.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await session.get_items() == [says("hello")]


def add_items(url: str, name: str) -> None:
    async def add() -> None:
        with MemoryLogSession("chat", url) as session:
            for number in range(50):
                await session.add_items([says(f"{name} {number}")])

    asyncio.run(add())


def test_two_processes_lose_no_item(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db?durability=os"
    at_once(add_items, url)
    with MemoryLogSession("chat", url) as session:
        contents = [str(item.get("content")) for item in asyncio.run(session.get_items())]
    assert len(contents) == 100
    for name in NAMES:
        assert [content for content in contents if content.startswith(name)] == [f"{name} {n}" for n in range(50)]


def pop_items(url: str, name: str) -> None:
    async def pop() -> None:
        with MemoryLogSession("chat", url) as session, MemoryLogSession(name, url) as popped:
            while (item := await session.pop_item()) is not None:
                await popped.add_items([item])

    asyncio.run(pop())


def test_two_processes_pop_every_item_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db?durability=os"
    items = [says(f"{number}") for number in range(60)]
    with MemoryLogSession("chat", url) as session:
        asyncio.run(session.add_items(items))
        at_once(pop_items, url)
        assert asyncio.run(session.get_items()) == []
    popped: list[Item] = []
    for name in NAMES:
        with MemoryLogSession(name, url) as session:
            popped += asyncio.run(session.get_items())
    assert sorted(popped, key=str) == sorted(items, key=str)


def test_killed_process_leaves_whole_steps(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    last = last_number_of(start("add_and_pop_until_killed", url))
    with MemoryLogSession("chat", url) as session:
        items = asyncio.run(session.get_items())
    expected = [says(f"{number} kept") for number in range(last + 1)]
    unacknowledged = [[], [says(f"{last + 1} kept"), says(f"{last + 1} popped")], [says(f"{last + 1} kept")]]
    assert items in [[*expected, *extra] for extra in unacknowledged]
