from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.genai import types
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_memory_log.errors import InvalidArgument, StoreClosed
from agent_memory_log.integrations.google_adk import MemoryLogMemoryService, MemoryLogSessionService
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.transcript import build, validate
from tests.processes import PATIENCE, ROOT

HOSTILE = ("a", "a/b", "a%2Fb", "a%", "@memory", "' or 1=1 --", "\x00", "x" * 513, "x" * 514, "app", "\U0001f600")
AGENT, RUN = "google-adk/shop/42", "s1"
PARTS: dict[str, list[types.Part]] = {
    "text": [types.Part(text="Where is my order?")],
    "texts": [types.Part(text="one"), types.Part(text="two")],
    "thought": [types.Part(text="hm", thought=True, thought_signature=b"\xff\xfe"), types.Part(text="It left.")],
    "calls": [
        types.Part(text="I look."),
        types.Part(function_call=types.FunctionCall(id="c1", name="find--order", args={"n": None})),
        types.Part(function_call=types.FunctionCall(name="no_id")),
    ],
    "results": [
        types.Part(function_response=types.FunctionResponse(id="c1", name="find--order", response={"result": [1]})),
        types.Part(function_response=types.FunctionResponse(name="no_id", response={"error": "gone"})),
    ],
    "image": [types.Part.from_bytes(data=b"\xff\x00", mime_type="image/png")],
    "image and text": [types.Part.from_bytes(data=b"\xff", mime_type="image/png"), types.Part(text="Look.")],
    "code": [types.Part(executable_code=types.ExecutableCode(code="1/0", language=types.Language.PYTHON))],
    "empty text": [types.Part(text="")],
    "none": [],
}


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.integrations.google_adk_programs", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def says(text: str, role: str = "user", **fields: Any) -> Event:
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(author="user" if role == "user" else "clerk", content=content, **fields)


def changes(**delta: Any) -> EventActions:
    return EventActions(state_delta={key.replace("_", ":", 1): value for key, value in delta.items()})


async def get(service: Any, user: str = "42", session: str = RUN, **config: Any) -> Session:
    results = await service.get_session(
        app_name="shop", user_id=user, session_id=session, config=GetSessionConfig(**config) if config else None
    )
    assert isinstance(results, Session)
    return results


@pytest.fixture
async def service(url: str) -> AsyncGenerator[MemoryLogSessionService]:
    async with MemoryLogSessionService(url) as opened:
        yield opened


@pytest.fixture
async def session(service: MemoryLogSessionService) -> Session:
    return await service.create_session(app_name="shop", user_id="42", session_id=RUN)


class ServiceMachine(RuleBasedStateMachine):
    """Compares our service, in memory and on SQLite, with ADK's own service in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.Runner()
        self.reference = InMemorySessionService()
        on_sqlite = MemoryLogSessionService(f"sqlite:///{self.folder.name}/runs.db?durability=os")
        self.services = [self.reference, MemoryLogSessionService("memory:"), on_sqlite]
        self.count = 0

    def teardown(self) -> None:
        for service in self.services[1:]:
            self.loop.run(service.close())  # type: ignore[attr-defined]  # ours have it
        self.loop.close()
        self.folder.cleanup()

    users = st.sampled_from(["1", "2"])
    ids = st.sampled_from(["a", "b"])
    keys = st.sampled_from(["app:x", "user:x", "x", "temp:x", "y"])

    @rule(user=users, session=ids, key=keys)
    def create(self, user: str, session: str, key: str) -> None:
        self.count += 1

        async def call(service: Any) -> object:
            try:
                created = await service.create_session(
                    app_name="shop", user_id=user, session_id=session, state={key: self.count}
                )
            except AlreadyExistsError:
                return "exists"
            return created.state

        self.same([self.loop.run(call(service)) for service in self.services])

    @rule(user=users, session=ids)
    def delete(self, user: str, session: str) -> None:
        for service in self.services:
            self.loop.run(service.delete_session(app_name="shop", user_id=user, session_id=session))

    @rule(
        user=users,
        session=ids,
        parts=st.sampled_from([*PARTS]),
        deltas=st.dictionaries(keys, st.none() | st.floats(0, 9)),
    )
    def append(self, user: str, session: str, parts: str, deltas: dict[str, Any]) -> None:
        self.count += 1
        event = Event(
            id=f"event {self.count}",
            author="clerk",
            timestamp=float(self.count),
            content=types.Content(role="user" if parts == "results" else "model", parts=PARTS[parts]),
            actions=EventActions(state_delta=deltas),
        )

        async def call(service: Any) -> object:
            results = await service.get_session(app_name="shop", user_id=user, session_id=session)
            if results is None:
                return None
            await service.append_event(results, event.model_copy(deep=True))
            return results.model_dump(exclude={"last_update_time"})

        self.same([self.loop.run(call(service)) for service in self.services])

    @rule(user=users, session=ids, most=st.none() | st.integers(0, 5), since=st.none() | st.integers(1, 30))
    def read(self, user: str, session: str, most: int | None, since: int | None) -> None:
        config = GetSessionConfig(num_recent_events=most, after_timestamp=since)

        async def call(service: Any) -> object:
            results = await service.get_session(app_name="shop", user_id=user, session_id=session, config=config)
            return results and results.model_dump(exclude={"last_update_time"})

        self.same([self.loop.run(call(service)) for service in self.services])

    @invariant()
    def lists_and_states_are_equal(self) -> None:
        async def call(service: Any, user: str | None) -> object:
            listed = await service.list_sessions(app_name="shop", user_id=user)
            sessions = sorted((session.user_id, session.id, str(session.state)) for session in listed.sessions)
            return sessions, [await service.get_user_state(app_name="shop", user_id=name) for name in "12"]

        for user in ("1", None):
            self.same([self.loop.run(call(service, user)) for service in self.services])

    @staticmethod
    def same(results: list[object]) -> None:
        assert results[1] == results[0]
        assert results[2] == results[0]


ServiceMachine.TestCase.settings = settings(stateful_step_count=20)
TestServiceMachine = ServiceMachine.TestCase


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("role", ["user", "model", None])
async def test_content_comes_back(
    service: MemoryLogSessionService, session: Session, name: str, role: str | None
) -> None:
    event = Event(author="clerk", content=types.Content(role=role, parts=PARTS[name]), custom_metadata={"a": None})
    await service.append_event(session, event)
    assert (await get(service)).events == [event]


async def test_event_that_no_store_accepts_comes_back(service: MemoryLogSessionService, session: Session) -> None:
    deep: Any = 0
    for _ in range(150):
        deep = [deep]
    event = says("hello", custom_metadata={"deep": deep, "large": 2**70})
    await service.append_event(session, event)
    assert (await get(service)).events == [event]
    assert [each.type for each in service.store.load_run(AGENT, RUN).log] == [
        "google-adk.session_state",
        "google-adk.event_text",
    ]


@pytest.mark.parametrize("value", [object(), "\ud800"])
async def test_event_that_is_no_json_is_refused(
    service: MemoryLogSessionService, session: Session, value: object
) -> None:
    with pytest.raises(InvalidArgument, match="event 'e1' must be JSON"):
        await service.append_event(session, Event(id="e1", author="clerk", custom_metadata={"x": value}))
    with pytest.raises(InvalidArgument, match="state must be JSON"):
        await service.create_session(app_name="shop", user_id="42", state={"x": "\ud800"})
    assert (await get(service)).events == session.events == []


async def test_run_is_a_transcript_with_the_events_ids(service: MemoryLogSessionService, session: Session) -> None:
    call = types.Part(function_call=types.FunctionCall(id="c1", name="find_order", args={"n": 1}))
    result = types.Part(function_response=types.FunctionResponse(id="c1", name="find_order", response={"at": "home"}))
    events = [
        says("Where is my order?"),
        Event(author="clerk", content=types.Content(role="model", parts=[call]), actions=changes(user_x=1)),
        Event(author="clerk", content=types.Content(role="user", parts=[result])),
        says("It is home.", "model"),
    ]
    for event in events:
        await service.append_event(session, event)
    snapshot = service.store.load_run(AGENT, RUN)
    transcript = build(snapshot, "gemini")
    contents = [
        event.content.model_dump(mode="json", by_alias=True, exclude_none=True) for event in events if event.content
    ]
    assert transcript == contents
    assert validate(transcript, "gemini") == []
    types_in_log = ["user_message", "tool_call", "tool_result", "assistant_message"]
    typed = [event for event in snapshot.log if event.type in types_in_log]
    assert [event.type for event in typed] == types_in_log
    assert [event.event_id for event in typed] == [event.id for event in events]
    assert [message["role"] for message in build(snapshot, "anthropic")] == ["user", "assistant", "user", "assistant"]


async def test_repeated_append_is_stored_once(service: MemoryLogSessionService, session: Session) -> None:
    event = says("hello", actions=changes(app_x=1, own=2))
    again = session.model_copy(deep=True)
    await service.append_event(session, event)
    await service.append_event(again, event.model_copy(deep=True))
    assert again == session
    assert (await get(service)).events == [event]
    await service.append_event(again, says("next"))
    with pytest.raises(StaleSessionError, match="modified in storage"):
        await service.append_event(session, says("late"))


async def test_another_event_with_a_known_id_is_refused(service: MemoryLogSessionService, session: Session) -> None:
    await service.append_event(session, says("one", id="e1"))
    with pytest.raises(StaleSessionError):
        await service.append_event(session, says("two", id="e1"))
    assert [event.content for event in (await get(service)).events] == [says("one").content]


async def test_deleted_session_refuses_events_and_its_successor_is_empty(
    service: MemoryLogSessionService, session: Session
) -> None:
    await service.append_event(session, says("hello"))
    await service.delete_session(app_name="shop", user_id="42", session_id=RUN)
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, says("late"))
    # A writer that saw the session before the deletion may still append. This does not bring the session back.
    service.store.append_events(AGENT, RUN, *service.store.load_run(AGENT, "none").log)
    successor = await service.create_session(app_name="shop", user_id="42", session_id=RUN)
    assert (successor.events, successor.state) == ([], {})
    with pytest.raises(StaleSessionError):
        await service.append_event(session, says("late"))


async def test_event_appended_during_a_deletion_does_not_bring_the_session_back(
    service: MemoryLogSessionService, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = service.store.append_events

    def delete_first(*arguments: Any, **options: Any) -> Any:
        service.store.delete_run(AGENT, RUN)
        return append(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(service.store, "append_events", delete_first)
        await service.append_event(session, says("late", actions=changes(x=1)))
    assert await service.get_session(app_name="shop", user_id="42", session_id=RUN) is None
    assert (await service.list_sessions(app_name="shop", user_id="42")).sessions == []
    successor = await service.create_session(app_name="shop", user_id="42", session_id=RUN)
    assert (await get(service)) == successor
    assert successor.events == []


async def test_sessions_with_different_ids_share_nothing(service: MemoryLogSessionService, url: str) -> None:
    apps = HOSTILE[:1] if url.startswith("mongodb:") else HOSTILE  # the test server takes long for all of them
    places = [(app, user, session) for app in apps for user, session in zip(HOSTILE, reversed(HOSTILE), strict=True)]
    for app, user, session in places:
        state = {"own": [app, user, session], "user:u": [app, user], "app:a": app}
        await service.create_session(app_name=app, user_id=user, session_id=session, state=state)
    for app, user, session in places:
        results = await service.get_session(app_name=app, user_id=user, session_id=session)
        assert results is not None
        assert results.state == {"own": [app, user, session], "user:u": [app, user], "app:a": app}
        assert len((await service.list_sessions(app_name=app, user_id=user)).sessions) == 1
    assert len((await service.list_sessions(app_name="a")).sessions) == len(HOSTILE)


async def test_redacted_event_is_left_out(service: MemoryLogSessionService, session: Session) -> None:
    parts = [*PARTS["calls"]]
    for event in (Event(author="clerk", content=types.Content(role="model", parts=parts)), says("kept")):
        await service.append_event(session, event)
    service.store.redact_events(AGENT, RUN, [2])
    assert [event.content for event in (await get(service)).events] == [says("kept").content]


async def test_last_update_time_is_that_of_the_newest_event(service: MemoryLogSessionService, session: Session) -> None:
    await service.append_event(session, says("hello", timestamp=5.25))
    listed = (await service.list_sessions(app_name="shop", user_id="42")).sessions
    without_events = await get(service, num_recent_events=0)
    times = [each.last_update_time for each in (session, await get(service), without_events, *listed)]
    assert times == [5.25] * 4


async def test_closed_service_refuses_calls(service: MemoryLogSessionService) -> None:
    await service.close()
    with pytest.raises(StoreClosed):
        await service.list_sessions(app_name="shop", user_id="42")


async def test_process_that_dies_before_shared_state_loses_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with MemoryLogSessionService(url) as service:
        await service.create_session(app_name="shop", user_id="42", session_id=RUN)
        process = await asyncio.to_thread(start, "change_shared_state_and_die", url)
        await asyncio.to_thread(process.communicate, None, PATIENCE)
        assert process.returncode == -signal.SIGKILL
        assert await service.get_user_state(app_name="shop", user_id="42") == {}
        session = await get(service)
        assert [event.id for event in session.events] == ["e1"]
        assert session.state == {"app:a": 1, "user:u": 2, "own": 3}
        other = await service.create_session(app_name="shop", user_id="42")
        assert other.state == {"app:a": 1, "user:u": 2}
        assert service.store.load_run("google-adk", "app/shop").version == 1


async def test_repair_does_not_repeat_a_change(service: MemoryLogSessionService, session: Session) -> None:
    await service.append_event(session, says("one", actions=changes(app_x=1)))
    other = await service.create_session(app_name="shop", user_id="7", state={"app:x": 2})
    assert other.state == (await get(service)).state == {"app:x": 2}


async def test_two_processes_lose_no_event_and_no_state(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db?durability=os"
    async with MemoryLogSessionService(url) as service:
        await service.create_session(app_name="shop", user_id="42", session_id=RUN)
        processes = [start("append_events", url, name, "25") for name in ("left", "right")]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        assert processes[0].stdin is not None
        processes[0].stdin.write("go\n")
        processes[0].stdin.flush()
        for process in reversed(processes):
            await asyncio.to_thread(process.communicate, "go\n", PATIENCE)
            assert process.returncode == 0
        session = await get(service)
    assert sorted(event.id for event in session.events) == sorted(
        f"{name} {n}" for name in ("left", "right") for n in range(25)
    )
    own = {"own left": 24, "own right": 24}
    assert session.state == {f"app:{name}{n}": n for name in ("left", "right") for n in range(25)} | own


@pytest.mark.parametrize("learns", [True, False])
async def test_memory_finds_messages_and_learned_memories(
    service: MemoryLogSessionService, session: Session, learns: bool
) -> None:
    memory = MemoryLogMemoryService(service.store, extractor=RuleExtractor() if learns else None)
    for event in (says("I live in Berlin."), says("Noted.", "model"), says("Hm."), says("Yes?", "model")):
        await service.append_event(session, event)
    await memory.add_session_to_memory(session)
    await memory.add_session_to_memory(session)
    results = (await memory.search_memory(app_name="shop", user_id="42", query="Berlin")).memories
    texts = [(entry.content.parts or [])[0].text for entry in results]
    assert sorted(map(str, texts)) == (["I live in Berlin.", "home: Berlin"] if learns else ["I live in Berlin."])
    records = SyncMemoryClient(service.store).of(Principal(tenant="shop", scopes={"user": "42"})).list()
    assert len(records) == learns
    assert (await memory.search_memory(app_name="shop", user_id="7", query="Berlin")).memories == []
    await service.delete_session(app_name="shop", user_id="42", session_id=RUN)
    assert (await memory.search_memory(app_name="shop", user_id="42", query="Berlin")).memories == []


async def test_added_events_are_found_once() -> None:
    async with MemoryLogMemoryService("memory:") as memory:
        events = [says("The key is under the mat.", id="e1"), Event(author="user", id="e2")]
        other = says("Another text with this id mentions the key.", id="e1")
        for batch in (events, events, [other]):
            await memory.add_events_to_memory(app_name="shop", user_id="42", events=batch, session_id="s1")
        results = (await memory.search_memory(app_name="shop", user_id="42", query="key")).memories
        assert [(entry.content, entry.author) for entry in results] == [(events[0].content, "user")]


@pytest.mark.parametrize("user", ["", " 42", "\x00"])
async def test_memory_refuses_a_user_that_could_be_confused(user: str) -> None:
    async with MemoryLogMemoryService("memory:") as memory:
        with pytest.raises(InvalidArgument):
            await memory.add_events_to_memory(app_name="shop", user_id=user, events=[says("hello")])
        assert memory.store.list_runs().runs == ()
