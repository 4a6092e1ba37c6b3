from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage, RunUsage

from agent_memory_log.errors import InvalidArgument, InvalidEvent, StoreClosed
from agent_memory_log.integrations.pydantic_ai import MemoryLogConversationStore, memory_context, memory_toolset
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.transcript import build
from tests.effort import EXAMPLES
from tests.integrations.at_once import NAMES, at_once
from tests.integrations.test_openai_agents import HOSTILE


def deep(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


IMAGE = BinaryContent(data=b"\xff\x00", media_type="image/png")
_MESSAGES: dict[str, ModelMessage] = {
    "prompt": ModelRequest(parts=[UserPromptPart("Where is my order?")]),
    "empty prompt": ModelRequest(parts=[UserPromptPart("")]),
    "instructions": ModelRequest(parts=[SystemPromptPart("Be kind."), UserPromptPart("Hi")], instructions="Be brief."),
    "media": ModelRequest(parts=[UserPromptPart(["Look", IMAGE, ImageUrl("https://example.org/a.png"), "at this"])]),
    "only media": ModelRequest(parts=[UserPromptPart([IMAGE])]),
    "results": ModelRequest(
        parts=[
            ToolReturnPart(tool_name="find", content={"a": [1, 2.5, None, 2**70]}, tool_call_id="c1"),
            ToolReturnPart(tool_name="find", content=None, tool_call_id="c2"),
            ToolReturnPart(tool_name="find", content="", tool_call_id="c3", metadata={"x": None}),
            ToolReturnPart(tool_name="find", content="gone", tool_call_id="c4", outcome="failed"),
            ToolReturnPart(tool_name="find", content={"why": "no"}, tool_call_id="c5", outcome="denied"),
        ]
    ),
    "feedback": ModelRequest(parts=[RetryFeedbackPart(content="Again, please.", retry=RetryInfo(cause="model_retry"))]),
    "calls": ModelResponse(
        parts=[
            ThinkingPart("hm", signature="s", provider_name="anthropic"),
            ThinkingPart("", id="r1"),
            TextPart("I look."),
            ToolCallPart("find", {"a": None, "b": {}}, "c1"),
            ToolCallPart("find", '{"a": 1.50', "c2"),
            ToolCallPart("find", {}, "c3"),
            ToolCallPart("find", None, "c4"),
            ToolCallPart("find", "", "c5"),
        ],
        usage=RequestUsage(input_tokens=5, details={"x": 1}),
        model_name="m",
        finish_reason="tool_call",
    ),
    "native": ModelResponse(
        parts=[
            NativeToolCallPart("web_search", {"q": 1}, "n1", provider_name="openai"),
            NativeToolReturnPart("web_search", {"r": [1]}, "n1", provider_name="openai"),
            FilePart(IMAGE),
            CompactionPart(content="short", provider_name="anthropic"),
        ]
    ),
    "nothing": ModelResponse(parts=[]),
    "too deep": ModelRequest(parts=[ToolReturnPart(tool_name="find", content=deep(150), tool_call_id="c1")]),
}

# As Pydantic AI reads them from JSON: it adds, for example, identifiers to media.
MESSAGES = {
    name: ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json([message]))[0]
    for name, message in _MESSAGES.items()
}


def prompt(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def answer(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


@pytest.fixture
def store(url: str) -> Generator[MemoryLogConversationStore]:
    with MemoryLogConversationStore(url) as opened:
        yield opened


class StoreMachine(RuleBasedStateMachine):
    """Compares our store, in memory and on SQLite, with Pydantic AI's own store in memory."""

    ids = st.sampled_from(["a", "b", "c"])
    scopes = st.sampled_from([None, "kim", "eve"])
    numbers = st.integers(0, 6)

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.Runner()
        self.url = f"sqlite:///{self.folder.name}/runs.db?durability=os"
        self.stores: list[Any] = [
            InMemoryConversationStore(),
            MemoryLogConversationStore("memory:"),
            MemoryLogConversationStore(self.url),
        ]
        self.count = 0

    def teardown(self) -> None:
        for store in self.stores[1:]:
            store.close()
        self.loop.close()
        self.folder.cleanup()

    def same(self, call: Any) -> None:
        """Carry out a call on each store, and compare the outcomes."""

        async def outcome(store: Any) -> object:
            try:
                return await call(store)
            except (UserError, ConversationConflict) as error:
                return type(error)

        expected, *results = [self.loop.run(outcome(store)) for store in self.stores]
        for result in results:
            assert result == expected

    @staticmethod
    def as_tuple(conversation: Conversation | None) -> object:
        return conversation and (conversation.messages, conversation.usage, conversation.conversation_id)

    def new_messages(self, count: int) -> list[ModelMessage]:
        self.count += 1
        kinds = list(MESSAGES.values())
        return [prompt(f"prompt {self.count}"), *(kinds[(self.count + index) % len(kinds)] for index in range(count))]

    @rule(name=ids, scope=scopes, count=st.integers(0, 3))
    def create(self, name: str, scope: str | None, count: int) -> None:
        messages = self.new_messages(count)
        usage = RunUsage(requests=self.count)

        async def call(store: Any) -> object:
            conversation = Conversation(messages=list(messages), conversation_id=name, usage=usage)
            return [entry.message for entry in await store.save(conversation, scope=scope)]

        self.same(call)

    @rule(name=ids, scope=scopes, count=st.integers(0, 3), limit=st.none() | numbers, is_stale=st.booleans())
    def extend(self, name: str, scope: str | None, count: int, limit: int | None, is_stale: bool) -> None:
        messages = self.new_messages(count)

        async def call(store: Any) -> object:
            conversation = await store.load(name, limit=limit, scope=scope)
            if conversation is None:
                return None
            stale = dataclasses.replace(conversation)
            conversation.messages += messages
            entries = await store.save(conversation, scope=scope)
            if is_stale:
                await store.save(stale)
            return [entry.message for entry in entries], self.as_tuple(conversation)

        self.same(call)

    @rule(name=ids, keep=numbers)
    def rewrite(self, name: str, keep: int) -> None:
        messages = self.new_messages(1)

        async def call(store: Any) -> object:
            conversation = await store.load(name)
            if conversation is None:
                return None
            conversation.messages = [*conversation.messages[:keep], *messages]
            conversation.new_message_index = None
            return [entry.message for entry in await store.save(conversation)]

        self.same(call)

    @rule(name=ids, at=numbers)
    def branch(self, name: str, at: int) -> None:
        async def call(store: Any) -> object:
            record = await store.read_record(name)
            revision = record and record.revision
            return self.as_tuple(await store.branch(name, at=at, expected_revision=revision))

        self.same(call)

    @rule(name=ids, number=numbers, back=st.integers(0, 2))
    def branch_back(self, name: str, number: int, back: int) -> None:
        async def call(store: Any) -> object:
            record = await store.read_record(name)
            if record is None or number >= len(record.branches):
                return None
            history = await store.read_history(record.branches[number], limit=back + 1)
            entry = history[0].id
            return self.as_tuple(await store.branch(name, from_entry=entry, expected_revision=record.revision))

        self.same(call)

    @rule(name=ids, new=ids, at=st.none() | numbers, scope=scopes)
    def fork(self, name: str, new: str, at: int | None, scope: str | None) -> None:
        async def call(store: Any) -> object:
            return self.as_tuple(await store.fork(name, at=at, new_conversation_id=new, scope=scope))

        self.same(call)

    @rule(name=ids, scope=scopes)
    def delete(self, name: str, scope: str | None) -> None:
        async def call(store: Any) -> object:
            return await store.delete(name, scope=scope)

        self.same(call)

    @rule(name=ids, limit=numbers)
    def window(self, name: str, limit: int) -> None:
        async def call(store: Any) -> object:
            return self.as_tuple(await store.load(name, limit=limit))

        self.same(call)

    @rule()
    def open_again(self) -> None:
        self.stores[2].close()
        self.stores[2] = MemoryLogConversationStore(self.url)

    @invariant()
    def contents_are_equal(self) -> None:
        async def call(store: Any) -> object:
            contents: list[object] = []
            for scope in (None, "kim"):
                for record in await store.list_conversations(scope=scope):
                    branches = [await store.read_history(tip) for tip in record.branches]
                    messages = [[entry.message for entry in branch] for branch in branches]
                    about = (record.scope, record.forked_from, record.usage)
                    contents.append((about, self.as_tuple(await store.load(record.conversation_id)), messages))
            return contents

        self.same(call)


StoreMachine.TestCase.settings = settings(max_examples=EXAMPLES // 2, stateful_step_count=15)
TestStoreMachine = StoreMachine.TestCase


@pytest.mark.parametrize("name", MESSAGES)
async def test_message_comes_back(store: MemoryLogConversationStore, name: str) -> None:
    messages = [MESSAGES[name], MESSAGES["prompt"]]
    await store.save(Conversation(messages=messages, conversation_id="c"))
    conversation = await store.load("c")
    assert conversation is not None
    assert conversation.messages == messages


@pytest.mark.parametrize("content", ["\ud800", object()])
async def test_message_that_is_no_json_is_refused(store: MemoryLogConversationStore, content: Any) -> None:
    message = ModelRequest(parts=[ToolReturnPart(tool_name="find", content=content, tool_call_id="c1")])
    with pytest.raises(InvalidArgument, match="a message must be JSON"):
        await store.save(Conversation(messages=[MESSAGES["prompt"], message], conversation_id="c"))
    assert await store.load("c") is None


def agent_of(text: str, **options: Any) -> Agent[None, str]:
    return Agent(TestModel(custom_output_text=text, call_tools=[]), **options)


async def test_run_is_a_transcript_that_memory_learns_from(store: MemoryLogConversationStore) -> None:
    conversation = Conversation(conversation_id="c")
    for text in ("I live in Berlin.", "Where is my order?"):
        result = await agent_of("On its way.").run(text, conversation=conversation)
        await store.save(result)
        conversation = result.conversation
    assert [message["role"] for message in build(store.store.load_run("pydantic-ai", "c"), "anthropic")] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    memory = SyncMemoryClient(store.store).of(Principal(tenant="acme", scopes={"user": "42"}))
    memory.derive("pydantic-ai", "c", extractor=RuleExtractor())
    assert [record.key for record in memory.list()] == ["home"]
    await store.delete("c")
    assert memory.list() == ()


async def test_context_from_memory_is_stored_and_falls_with_its_memory(store: MemoryLogConversationStore) -> None:
    memory = SyncMemoryClient(store.store).of(Principal(tenant="acme", scopes={"user": "42"}))
    memory.remember(key="units", value="metric")
    agent = agent_of("In metres.", capabilities=[ProcessHistory(memory_context(memory))])
    result = await agent.run("Which units?", conversation=Conversation(conversation_id="c"))
    await store.save(result)
    memory.link_run("pydantic-ai", "c")
    assert [event.type for event in store.store.load_run("pydantic-ai", "c").log] == [
        "user_message",
        "injected_context",
        "assistant_message",
        "pydantic-ai.conversation_saved",
    ]
    conversation = await store.load("c")
    assert conversation is not None
    assert conversation.messages == result.all_messages()
    assert "metric" in str(conversation.messages[0])

    memory.forget(key="units", evidence=True)
    conversation = await store.load("c")
    assert conversation is not None
    assert "metric" not in str(conversation.messages)
    assert len(conversation.messages) == 2


async def test_context_is_added_once_and_only_to_prompts(store: MemoryLogConversationStore) -> None:
    memory = SyncMemoryClient(store.store).of(Principal(tenant="acme", scopes={"user": "42"}))
    add_context = memory_context(memory)
    messages: list[ModelMessage] = [prompt("Which units?")]
    assert await add_context([]) == []
    assert await add_context(messages) == messages  # there is nothing to add
    memory.remember(key="units", value="metric")
    with_context = await add_context(messages)
    assert len(with_context[0].parts) == 2
    assert await add_context(with_context) == with_context
    messages = [MESSAGES["results"], MESSAGES["only media"], answer("units")]
    for message in messages:
        assert await add_context([message]) == [message]


async def test_agent_looks_into_memory(store: MemoryLogConversationStore) -> None:
    memory = SyncMemoryClient(store.store).of(Principal(tenant="acme", scopes={"user": "42"}))
    memory.remember(key="units", value="metric")
    agent = Agent(TestModel(), toolsets=[memory_toolset(memory)])
    result = await agent.run("Which units?")
    await store.save(result)
    assert result.output.startswith('{"search_memory":')
    assert "metric" in result.output
    run = store.store.load_run("pydantic-ai", result.conversation.conversation_id)
    assert [event.type for event in run.log][:3] == ["user_message", "tool_call", "tool_result"]


async def test_redacted_messages_and_parts_are_left_out(store: MemoryLogConversationStore) -> None:
    two_parts = ModelRequest(parts=[UserPromptPart("kept"), UserPromptPart("secret")])
    messages: list[ModelMessage] = [prompt("first"), answer("secret"), two_parts, answer("last")]
    entries = await store.save(Conversation(messages=list(messages), conversation_id="c"))
    store.store.redact_events("pydantic-ai", "c", [2, 4])
    conversation = await store.load("c")
    assert conversation is not None
    assert conversation.messages == [messages[0], ModelRequest(parts=[two_parts.parts[0]]), messages[3]]
    with pytest.raises(LookupError):
        await store.read_entry(entries[1].id)
    conversation.messages.append(prompt("more"))
    await store.save(conversation)
    assert len((await store.load("c") or conversation).messages) == 4


async def test_fork_is_a_run_of_its_own(store: MemoryLogConversationStore) -> None:
    entries = await store.save(Conversation(messages=[prompt("one"), answer("two")], conversation_id="a/b"))
    await store.fork("a/b", new_conversation_id="fork", at=1)
    await store.delete("a/b")
    assert store.store.load_run("pydantic-ai", "a%2Fb").log == ()
    with MemoryLogConversationStore(store.store) as other:
        assert (await other.read_entry(entries[0].id)).message == entries[0].message
        with pytest.raises(LookupError):
            await other.read_entry(entries[1].id)
    assert [event.type for event in store.store.load_run("pydantic-ai", "fork").log] == [
        "user_message",
        "pydantic-ai.conversation_saved",
    ]


def save_messages(url: str, name: str) -> None:
    async def save() -> None:
        with MemoryLogConversationStore(url) as store:
            for number in range(20):
                while True:
                    conversation = await store.load("c")
                    assert conversation is not None
                    conversation.messages.append(prompt(f"{name} {number}"))
                    try:
                        await store.save(conversation)
                    except ConversationConflict:
                        continue
                    break

    asyncio.run(save())


def test_two_processes_never_overwrite_each_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db?durability=os"
    with MemoryLogConversationStore(url) as store:
        asyncio.run(store.save(Conversation(conversation_id="c")))
        at_once(save_messages, url)
        conversation = asyncio.run(store.load("c"))
    assert conversation is not None
    texts = [str(message.parts[0].content) for message in conversation.messages]  # type: ignore[union-attr]  # all are prompts
    assert len(texts) == 40
    for name in NAMES:
        assert [text for text in texts if text.startswith(name)] == [f"{name} {number}" for number in range(20)]


async def test_conversations_with_different_ids_share_nothing(store: MemoryLogConversationStore) -> None:
    for conversation_id in HOSTILE:
        await store.save(Conversation(messages=[prompt(conversation_id)], conversation_id=conversation_id))
    for conversation_id in HOSTILE:
        conversation = await store.load(conversation_id)
        assert conversation is not None
        assert [getattr(message.parts[0], "content", "") for message in conversation.messages] == [conversation_id]


@pytest.mark.parametrize("conversation_id", ["", "\ud800"])
async def test_id_that_no_run_can_have_is_refused(store: MemoryLogConversationStore, conversation_id: str) -> None:
    with pytest.raises(InvalidEvent):
        await store.save(Conversation(conversation_id=conversation_id))


async def test_closed_store_refuses_calls(store: MemoryLogConversationStore) -> None:
    store.close()
    with pytest.raises(StoreClosed):
        await store.load("c")
