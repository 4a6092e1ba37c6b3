"""The rows of the table that compare Pydantic AI's conversations with its own store in memory.

Pydantic AI has no store on a disk. So the bytes are compared with the JSON of the messages alone.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from datetime import UTC, datetime
from pathlib import Path

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationStore, InMemoryConversationStore
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from agent_memory_log.integrations.pydantic_ai import MemoryLogConversationStore
from benchmarks.measure import Progress, Ratio, compare, timed
from benchmarks.scratch import scratch
from benchmarks.table import Figure, Row

_TURNS = 50
_LONG = 250
_NEWEST = 20
_AGAINST = "its store in memory"
_TIME = datetime(2026, 11, 20, 9, tzinfo=UTC)


def rows(fast: Path) -> list[Row]:
    """Return every comparison."""
    name = "Pydantic AI"
    return [
        Row(f"{name}, save the 4 messages of a turn", _AGAINST, None, lambda n, p: _saves(fast, n, p)),
        Row(f"{name}, load 1,000 messages", _AGAINST, None, lambda n, p: _loads(fast, None, n, p)),
        Row(f"{name}, load 20 of 1,000 messages", _AGAINST, None, lambda n, p: _loads(fast, _NEWEST, n, p)),
    ]


def figures(disk: Path) -> list[Figure]:
    """Return every plain number."""
    return [
        Figure("Pydantic AI, bytes on disk", "of its messages as JSON", 1.0, lambda: _bytes_on_disk(disk)),
        Figure("Pydantic AI, 2 processes on a conversation", "saves lost", 0, lambda: _lost(disk)),
    ]


def _turn(number: int) -> list[ModelMessage]:
    """Return the messages of a turn with one call, as an agent's run makes them."""
    call_id = f"call_{number:024d}"
    text = f"Your order {number} left the warehouse this morning and arrives on Friday. Can I do anything else for you?"
    run_id = f"7c9e6679-7425-40de-944b-{number:012x}"

    def response(part: TextPart | ToolCallPart) -> ModelResponse:
        usage = RequestUsage(input_tokens=1_200 + number, output_tokens=31)
        return ModelResponse([part], usage=usage, model_name="gpt-5.5", timestamp=_TIME, run_id=run_id)

    prompt = UserPromptPart(f"Where is my order {number}?", timestamp=_TIME)
    result = ToolReturnPart("find_order", {"order": number, "status": "sent"}, tool_call_id=call_id, timestamp=_TIME)
    return [
        ModelRequest([prompt], run_id=run_id, timestamp=_TIME),
        response(ToolCallPart("find_order", {"order": number, "fields": ["status"]}, tool_call_id=call_id)),
        ModelRequest([result], run_id=run_id, timestamp=_TIME),
        response(TextPart(text)),
    ]


def _store(folder: Path) -> MemoryLogConversationStore:
    return MemoryLogConversationStore(f"sqlite:///{folder / 'ours.db'}")


async def _save(store: ConversationStore, turns: int) -> Conversation:
    conversation = Conversation(conversation_id="chat-1")
    for number in range(turns):
        conversation.messages += _turn(number)
        await store.save(conversation)
    return conversation


def _saves(parent: Path, rounds: int, progress: Progress) -> Ratio:
    def log_side() -> float:
        with scratch(parent) as folder, asyncio.Runner() as runner, _store(folder) as store:
            return timed(lambda: runner.run(_save(store, _TURNS)), _TURNS)

    def framework_side() -> float:
        with asyncio.Runner() as runner:
            return timed(lambda: runner.run(_save(InMemoryConversationStore(), _TURNS)), _TURNS)

    return compare(log_side, framework_side, rounds, progress)


def _loads(parent: Path, limit: int | None, rounds: int, progress: Progress) -> Ratio:
    in_memory = InMemoryConversationStore()
    with scratch(parent) as folder, asyncio.Runner() as runner, _store(folder) as store:
        for side in (store, in_memory):
            runner.run(_save(side, _LONG))

        def load(side: ConversationStore) -> list[ModelMessage]:
            conversation = runner.run(side.load("chat-1", limit=limit))
            assert conversation is not None
            return conversation.messages

        assert load(store) == load(in_memory)
        return compare(
            lambda: timed(lambda: load(store), 1), lambda: timed(lambda: load(in_memory), 1), rounds, progress
        )


def _bytes_on_disk(parent: Path) -> float:
    """Return the size of our file with 1,000 messages, as a part of the size of their JSON."""
    with scratch(parent) as folder:
        with _store(folder) as store:
            conversation = asyncio.run(_save(store, _LONG))
        size = sum(file.stat().st_size for file in folder.glob("ours.db*"))
    return size / len(ModelMessagesTypeAdapter.dump_json(conversation.messages))


def _save_in_process(folder: Path) -> None:
    async def save(store: MemoryLogConversationStore) -> None:
        for number in range(_TURNS):
            while True:
                conversation = await store.load("chat-1", limit=1) or Conversation(conversation_id="chat-1")
                conversation.messages += _turn(number)
                try:
                    await store.save(conversation)
                except ConversationConflict:
                    continue
                break

    with _store(folder) as store:
        asyncio.run(save(store))


def _lost(disk: Path) -> float:
    with scratch(disk) as folder:
        spawn = multiprocessing.get_context("spawn")
        processes = [spawn.Process(target=_save_in_process, args=(folder,)) for _ in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        with _store(folder) as store:
            conversation = asyncio.run(store.load("chat-1"))
        stored = 0 if conversation is None else len(conversation.messages)
        return len(processes) * _TURNS - stored / 4
