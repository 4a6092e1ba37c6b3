from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from claude_agent_sdk import InMemorySessionStore, fold_session_summary
from claude_agent_sdk.testing import run_session_store_conformance
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from agent_memory_log import Compaction, ToolResult, UserMessage, open_sync_store
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.integrations.claude_agent import MemoryLogSessionStore, memory_tool
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.transcript import build
from tests.integrations.at_once import NAMES, at_once
from tests.processes import PATIENCE, ROOT, last_number_of
from tests.strategies import json_maps
from tests.transcript.transcripts_anthropic import CASE

Entry = Any  # the SDK's type of an entry names three of its fields
Key = Any

KEY: Key = {"project_key": "-home-kim", "session_id": "s1"}
SUB: Key = {**KEY, "subpath": "subagents/agent-1"}
PLACE = ("claude-agent/-home-kim", "s1")
HOSTILE = ("a", "a/b", "a%2Fb", "@memory", "' or 1=1 --", "\x00", "x" * 513, "x" * 514, "..", "claude-agent")


def user(content: Any, uuid: str = "", **fields: Any) -> Entry:
    entry = {"type": "user", "message": {"role": "user", "content": content}, **fields}
    return {**entry, "uuid": uuid} if uuid else entry


def with_session(session_id: str) -> Key:
    return {**KEY, "session_id": session_id}


def with_message(message: Any, fields: Any) -> Entry:
    return {"type": "user", **fields, "message": message}


def assistant(*blocks: Any, **fields: Any) -> Entry:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": list(blocks)}
    return {"type": "assistant", "message": {**message, "usage": {"input_tokens": 3}}, **fields}


USE = {"type": "tool_use", "id": "t1", "name": "mcp__files__read", "input": {"path": "a.txt"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "hello"}
SESSION: list[Entry] = [
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {"trackedFileBackups": {}}},
    user("Call me Kim.", "u1", parentUuid=None, timestamp="2026-11-20T09:00:00.123Z", cwd="/home/kim", version="2.1"),
    assistant({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, parentUuid="u1", uuid="a1"),
    assistant(USE, parentUuid="a1", uuid="a2", requestId="req_1"),
    user([RESULT], "u2", parentUuid="a2", toolUseResult={"file": {"content": "hello"}}),
    assistant({"type": "text", "text": "Hello Kim."}, {"type": "text", "text": "Done."}, uuid="a3", parentUuid="u2"),
    {"type": "custom-title", "customTitle": "Names", "sessionId": "s1"},
    user("<local-command-caveat>Caveat</local-command-caveat>", "u3", isMeta=True),
    user("Where is my order?", "u4"),
    {"type": "system", "subtype": "compact_boundary", "content": "Conversation compacted", "uuid": "y1"},
    user("This session is being continued: I hate tea.", "u5", isCompactSummary=True),
]


@pytest.fixture
def store(url: str) -> Any:
    with MemoryLogSessionStore(url) as opened:
        yield opened


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
def test_conformance(backend: str, scheme: str, tmp_path: Path) -> None:
    stores: list[MemoryLogSessionStore] = []

    def make() -> MemoryLogSessionStore:
        url = "memory:" if scheme == "memory" else f"sqlite:///{tmp_path}/{len(stores)}.db?durability=os"
        stores.append(MemoryLogSessionStore(url))
        return stores[-1]

    anyio.run(run_session_store_conformance, make, backend=backend)
    for store in stores:
        store.close()
    assert len(stores) == 15  # 14 contracts, after one look at the methods


ENTRIES: st.SearchStrategy[list[Entry]] = st.lists(
    st.sampled_from(SESSION)
    | st.builds(with_message, CASE.odd | CASE.good, json_maps())
    | json_maps()
    | st.just(user("\ud800")),
    max_size=4,
)
KEYS: st.SearchStrategy[Key] = st.fixed_dictionaries(
    {"project_key": st.sampled_from(["p", "q"]), "session_id": st.sampled_from(["s", "t"])},
    optional={"subpath": st.sampled_from(["a", "a/b"])},
)


class StoreMachine(RuleBasedStateMachine):
    """Compares session stores, in memory and on SQLite, with the SDK's own store in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.reference = InMemorySessionStore()
        url = f"sqlite:///{self.folder.name}/runs.db?durability=os"
        self.stores = [MemoryLogSessionStore("memory:"), MemoryLogSessionStore(url)]
        self.loop = asyncio.Runner()

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.loop.close()
        self.folder.cleanup()

    def compare(self, call: str, argument: Any, form: Callable[[Any], Any]) -> None:
        expected = form(self.loop.run(getattr(self.reference, call)(argument)))
        for store in self.stores:
            assert form(self.loop.run(getattr(store, call)(argument))) == expected

    @rule(key=KEYS, entries=ENTRIES)
    def append(self, key: Key, entries: list[Entry]) -> None:
        # The reference stores an entry again that has the uuid of an earlier one.
        entries = [{name: value for name, value in entry.items() if name != "uuid"} for entry in entries]
        if entries:  # an append without entries creates a transcript in the reference
            for store in (self.reference, *self.stores):
                self.loop.run(store.append(key, entries))

    @rule(key=KEYS)
    def load(self, key: Key) -> None:
        self.compare("load", key, as_json)

    @rule(project=st.sampled_from(["p", "q"]))
    def list_sessions(self, project: str) -> None:
        self.compare("list_sessions", project, lambda entries: sorted(entry["session_id"] for entry in entries))

    @rule(project=st.sampled_from(["p", "q"]))
    def list_summaries(self, project: str) -> None:
        # The reference keeps the summary of a session, but our stores have none before its main transcript exists.
        self.compare(
            "list_session_summaries",
            project,
            lambda entries: sorted(as_json([entry["session_id"], entry["data"]]) for entry in entries),
        )

    @rule(key=KEYS)
    def list_subkeys(self, key: Key) -> None:
        self.compare("list_subkeys", key, sorted)

    @rule(key=KEYS)
    def delete(self, key: Key) -> None:
        for store in (self.reference, *self.stores):
            self.loop.run(store.delete(key))


def as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


StoreMachine.TestCase.settings = settings(stateful_step_count=25)
TestStoreMachine = StoreMachine.TestCase


async def test_session_comes_back_equal(store: MemoryLogSessionStore) -> None:
    for entry in SESSION:
        await store.append(KEY, [entry])
    assert await store.load(KEY) == SESSION


@pytest.mark.parametrize("name", [*CASE.conversations, *CASE.valid])
async def test_messages_come_back_equal(store: MemoryLogSessionStore, name: str) -> None:
    messages = {**CASE.conversations, **CASE.valid}[name]
    entries: list[Entry] = [{"type": "user", "message": message, "cwd": "/"} for message in messages]
    await store.append(KEY, entries)
    assert as_json(await store.load(KEY) or []) == as_json(entries)


@given(ENTRIES)
def test_any_entries_come_back_equal(entries: list[Entry]) -> None:
    plain: list[Entry] = [{name: value for name, value in entry.items() if name != "uuid"} for entry in entries]

    async def main() -> None:
        with MemoryLogSessionStore("memory:") as store:
            await store.append(SUB, plain)
            assert as_json(await store.load(SUB) or []) == as_json(plain)

    asyncio.run(main())


async def test_messages_are_typed_events(store: MemoryLogSessionStore) -> None:
    await store.append(KEY, SESSION)
    snapshot = store.store.load_run(*PLACE)
    assert [event.type for event in snapshot.log] == [
        "claude-agent.entry",
        "user_message",
        "thinking",
        "tool_call",
        "tool_result",
        "assistant_message",
        "claude-agent.entry",
        "claude-agent.entry",
        "user_message",
        "claude-agent.entry",
        "compaction",
        "claude-agent.summary",
    ]
    assert snapshot.log[1].timestamp.isoformat() == "2026-11-20T09:00:00.123000+00:00"
    assert isinstance(snapshot.log[10].data, Compaction)
    assert build(snapshot, "anthropic") == [SESSION[-1]["message"]]


async def test_transcript_has_no_fields_that_the_api_refuses(store: MemoryLogSessionStore) -> None:
    await store.append(KEY, SESSION[:6])
    transcript = build(store.store.load_run(*PLACE), "anthropic")
    assert [message.keys() for message in transcript] == [{"role", "content"}] * len(transcript)


async def test_result_has_the_name_of_the_tool_that_an_earlier_append_called(store: MemoryLogSessionStore) -> None:
    for entry in SESSION[:5]:
        await store.append(KEY, [entry])
    results = store.store.load_run(*PLACE, types=["tool_result"]).log
    assert [event.data.tool_name for event in results if isinstance(event.data, ToolResult)] == ["mcp__files__read"]


async def test_memory_learns_from_the_user_alone(store: MemoryLogSessionStore) -> None:
    await store.append(KEY, [*SESSION, user("I prefer tea over coffee.", isMeta=True)])
    memory = SyncMemoryClient(store.store).of(Principal(tenant="acme", scopes={"user": "42"}))
    memory.derive(*PLACE, extractor=RuleExtractor())
    assert [record.key for record in memory.list()] == ["preferred_name"]
    await store.delete(KEY)
    assert memory.list() == ()


async def test_agent_looks_into_memory(store: MemoryLogSessionStore) -> None:
    memory = SyncMemoryClient(store.store).of(Principal(tenant="acme", scopes={"user": "42"}))
    tool = memory_tool(memory)
    empty = await tool.handler({"query": "units"})
    assert empty["content"][0]["text"] == "Nothing about this is remembered."
    memory.remember(key="units", value="metric")
    assert "metric" in (await tool.handler({"query": "units"}))["content"][0]["text"]


async def test_entry_is_stored_once(store: MemoryLogSessionStore) -> None:
    await store.append(KEY, SESSION[:4])
    changed: Entry = {**SESSION[1], "message": {"role": "user", "content": "changed"}}
    await store.append(KEY, [changed, SESSION[5], SESSION[5]])
    assert await store.load(KEY) == [*SESSION[:4], SESSION[5]]
    version = store.store.load_run(*PLACE).version
    await store.append(KEY, SESSION[1:4])
    await store.append(KEY, [])
    assert store.store.load_run(*PLACE).version == version


async def test_redacted_entry_is_left_out(store: MemoryLogSessionStore) -> None:
    await store.append(KEY, SESSION[:4])
    store.store.redact_events(*PLACE, [2])
    assert await store.load(KEY) == [SESSION[0], *SESSION[2:4]]


async def test_transcripts_with_different_keys_share_nothing() -> None:
    with open_sync_store("memory:") as opened:
        store = MemoryLogSessionStore(opened)
        keys: list[Key] = []
        for first in HOSTILE:
            for second in HOSTILE:
                keys += [{"project_key": first, "session_id": second}, {**KEY, "session_id": first, "subpath": second}]
        for number, key in enumerate(keys):
            await store.append(key, [user(str(number))])
        for number, key in enumerate(keys):
            assert await store.load(key) == [user(str(number))]
        for project in HOSTILE:
            listed = [entry["session_id"] for entry in await store.list_sessions(project)]
            assert sorted(listed) == sorted(HOSTILE)
        for session in HOSTILE:
            assert await store.list_subkeys(with_session(session)) == list(HOSTILE)


async def test_entry_that_is_no_json_is_refused_with_its_batch(store: MemoryLogSessionStore) -> None:
    with pytest.raises(InvalidArgument, match="an entry of a transcript must be JSON"):
        await store.append(KEY, [SESSION[0], user(object())])
    assert await store.load(KEY) is None


async def test_times_of_appends_differ_and_do_not_come_from_entries(store: MemoryLogSessionStore) -> None:
    for number in range(5):
        await store.append(with_session(str(number)), [user("old", timestamp="2020-01-01T00:00:00Z")])
    sessions = await store.list_sessions("-home-kim")
    assert [entry["session_id"] for entry in sorted(sessions, key=lambda entry: entry["mtime"])] == list("01234")
    assert len({entry["mtime"] for entry in sessions}) == 5
    assert min(entry["mtime"] for entry in sessions) > 1_700_000_000_000
    summaries = await store.list_session_summaries("-home-kim")
    assert {entry["session_id"]: entry["mtime"] for entry in summaries} == {
        entry["session_id"]: entry["mtime"] for entry in sessions
    }


def test_concurrent_appends_keep_the_summary_of_all_entries(store: MemoryLogSessionStore) -> None:
    barrier = threading.Barrier(4)
    fields = ("customTitle", "aiTitle", "lastPrompt", "gitBranch")  # an append that read an old summary reverts a field

    def append(name: int) -> None:
        barrier.wait(PATIENCE)
        for number in range(10):
            titles: list[Entry] = [{"type": "title", fields[name]: f"{name} {number}"}]
            anyio.run(store.append, KEY, titles, backend="trio" if name % 2 else "asyncio")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(4)))
    entries = asyncio.run(store.load(KEY))
    assert entries is not None
    assert len(entries) == 40
    expected = fold_session_summary(None, KEY, entries)["data"]
    assert [entry["data"] for entry in asyncio.run(store.list_session_summaries("-home-kim"))] == [expected]


def append_titles(url: str, name: str) -> None:
    async def append() -> None:
        with MemoryLogSessionStore(url) as store:
            for number in range(30):
                title: Entry = {"type": "title", "customTitle" if name == "left" else "aiTitle": f"{number}"}
                await store.append(KEY, [user(f"{name} {number}", f"{name}{number}"), title])

    asyncio.run(append())


def test_two_processes_lose_no_entry(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db?durability=os"
    at_once(append_titles, url)
    with MemoryLogSessionStore(url) as store:
        entries = asyncio.run(store.load(KEY))
        assert entries is not None
        assert len(entries) == 120
        for name in NAMES:
            ids = [str(entry.get("uuid")) for entry in entries if str(entry.get("uuid")).startswith(name)]
            assert ids == [f"{name}{number}" for number in range(30)]
        expected = fold_session_summary(None, KEY, entries)["data"]
        assert [entry["data"] for entry in asyncio.run(store.list_session_summaries("-home-kim"))] == [expected]


def test_killed_process_leaves_whole_appends(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    command = [sys.executable, "-m", "tests.integrations.session_programs", "append_entries_until_killed", url]
    last = last_number_of(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
    with MemoryLogSessionStore(url) as store:
        entries = asyncio.run(store.load(KEY))
        assert entries is not None
        number = len(entries) // 2 - 1
        assert number in (last, last + 1)
        assert [entry.get("uuid") for entry in entries[::2]] == [f"u{index}" for index in range(number + 1)]
        summary = asyncio.run(store.list_session_summaries("-home-kim"))[0]
        assert summary["data"]["custom_title"] == f"title {number}"


def test_only_the_user_is_a_user_message(store: MemoryLogSessionStore) -> None:
    asyncio.run(store.append(KEY, SESSION))
    log = store.store.load_run(*PLACE, types=["user_message"]).log
    assert [event.data.message for event in log if isinstance(event.data, UserMessage)] == [
        "Call me Kim.",
        "Where is my order?",
    ]
