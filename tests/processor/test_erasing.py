"""Tests that erased words are in no context, checkpoint or restored conversation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import (
    AssistantMessage,
    Compaction,
    EventData,
    PlannerNote,
    SyncStore,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
    open_sync_store,
)
from agent_memory_log.capabilities import Compacts
from agent_memory_log.memory import SyncMemoryClient
from agent_memory_log.models.tokens import estimate_tokens
from agent_memory_log.processor import LoopCheckpoint, SyncLoopMemory
from tests.processor.runs import AGENT, LOOP, RUN, stored

SECRET = "tangerine"
SECRETS = (
    UserMessage("The code word is tangerine."),
    AssistantMessage("I'll use tangerine as the code word."),
    PlannerNote("Keep tangerine in mind."),
    ToolCall("1", "write_file", payload_json='{"path": "tangerine.txt"}'),
    ToolCall("2", "login", payload_json='{"word": "tangerine"}'),
    ToolCall("3", "login", payload_json='{"user": "kim"}'),
)
AROUND = (
    UserMessage("Begin the long work."),
    ToolResult("1", "write_file", result_json='"ok"'),
    ToolResult("3", "login", error_message="tangerine is wrong"),
    AssistantMessage("Let's keep going."),
)


def everything_shown(store: SyncStore, loops: SyncLoopMemory, checkpoint: LoopCheckpoint) -> str:
    """Return every text that the loop memory returns about the run now."""
    texts = [
        loops.hydrate_pre_task(LOOP, "the code word", max_tokens=5_000).text,
        loops.hydrate_post_compaction(LOOP, max_tokens=5_000).text,
        loops.hydrate_post_compaction(LOOP, from_checkpoint=False, max_tokens=5_000).text,
    ]
    for budget in (200, 1_500, 50_000):
        conversation = loops.restore(checkpoint, budget, provider="openai-chat")
        texts += [json.dumps(list(conversation.transcript)), conversation.summary, *conversation.decisions]
        texts += [str(event) for event in conversation.open_calls]
    checkpoints = store.load_run(AGENT, RUN, types=("checkpoint",)).log
    return "\n".join([*texts, *map(str, checkpoints), str(checkpoint.pointer()), str(loops.graph_changes(LOOP))])


def holding(store: SyncStore) -> set[int]:
    """Return the seqs of the events of the run that hold the secret, without injected contexts."""
    return {
        event.seq
        for event in store.load_run(AGENT, RUN).log
        if event.type != "injected_context" and SECRET in json.dumps(event.to_map())
    }


@given(st.permutations([*SECRETS, *AROUND]), st.integers(0, 10))
def test_redacted_words_are_shown_nowhere(payloads: list[EventData], cut: int) -> None:
    with open_sync_store("memory:") as store:
        loops = SyncLoopMemory(store, SyncMemoryClient(store), count_tokens=estimate_tokens)
        stored(store, [new_event(data) for data in payloads[:cut]])
        loops.hydrate_pre_task(LOOP, "the code word")
        checkpoint = loops.checkpoint(LOOP)
        stored(store, [new_event(data) for data in payloads[cut:]])
        assert SECRET in everything_shown(store, loops, checkpoint)
        store.redact_events(AGENT, RUN, holding(store))
        assert SECRET not in everything_shown(store, loops, checkpoint)


def test_a_compaction_of_redacted_words_gives_way_to_the_events_that_it_replaced() -> None:
    with open_sync_store("memory:") as store:
        loops = SyncLoopMemory(store, SyncMemoryClient(store))
        stored(store, [new_event(UserMessage("It is tangerine.")), new_event(AssistantMessage("Hello, Kim."))])
        stored(store, [new_event(Compaction("The user said tangerine.")), new_event(UserMessage("Go on."))])
        checkpoint = loops.checkpoint(LOOP)
        before = str(loops.restore(checkpoint, provider="anthropic").transcript)
        assert SECRET in before
        assert "Kim" not in before
        store.redact_events(AGENT, RUN, [1])
        after = str(loops.restore(checkpoint, provider="anthropic").transcript)
        assert SECRET not in after
        assert "Kim" in after


@pytest.mark.parametrize("purges", [True, False])
def test_a_forgotten_memory_is_shown_nowhere(purges: bool, tmp_path: Path) -> None:
    with open_sync_store(f"sqlite:///{tmp_path}/log.db") as store:
        memory = SyncMemoryClient(store).of(LOOP.principal)
        loops = SyncLoopMemory(store, SyncMemoryClient(store))
        stored(store, [new_event(UserMessage("Begin."))])
        memory.remember(key="fruit", value=SECRET)
        assert SECRET in loops.hydrate_pre_task(LOOP, "fruit").text
        checkpoint = loops.checkpoint(LOOP)
        assert SECRET in str(loops.restore(checkpoint, provider="anthropic").transcript)
        memory.forget(key="fruit", evidence=purges)
        assert SECRET not in str(loops.restore(checkpoint, provider="anthropic").transcript)
        assert SECRET not in str(loops.graph_changes(LOOP))


def test_redacted_words_leave_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with open_sync_store(f"sqlite:///{path}") as store:
        memory = SyncMemoryClient(store).of(LOOP.principal)
        loops = SyncLoopMemory(store, SyncMemoryClient(store))
        stored(store, list(map(new_event, (*SECRETS, *AROUND))))
        checkpoint = loops.checkpoint(LOOP)
        everything_shown(store, loops, checkpoint)
        store.redact_events(AGENT, RUN, holding(store))
        memory.purge()
        assert isinstance(store, Compacts)
        store.compact()
    for file in filter(Path.is_file, tmp_path.rglob("*")):
        assert SECRET.encode() not in file.read_bytes(), file.name
