"""Tests of the loop memory: contexts, extraction and checkpoints on a store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agent_memory_log import (
    AssistantMessage,
    Checkpoint,
    Compaction,
    Event,
    InjectedContext,
    JsonValue,
    PlannerNote,
    SyncStore,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.memory import Extraction, MemoryClient, Principal, RunSlice, SyncMemoryClient
from agent_memory_log.models.tokens import CountTokens, estimate_tokens
from agent_memory_log.processor import Loop, LoopCheckpoint, LoopMemory, SyncLoopMemory
from agent_memory_log.processor.contexts import block_of, lines_of
from agent_memory_log.processor.journal import story_of
from agent_memory_log.processor.loops import MOST_POINTER_BYTES
from agent_memory_log.transcript import build
from tests.memory.stores import SaidPreferences, SetClock
from tests.processor.runs import AGENT, LOOP, RUN, growing_count, runs, stored
from tests.transcript.transcripts import numbered

WORK = (
    UserMessage("Make the cache faster."),
    AssistantMessage("I'll use SQLite for the cache."),
    ToolCall("1", "write_file", payload_json='{"path": "cache.py"}'),
    ToolResult("1", "write_file", result_json='"ok"'),
    ToolCall("2", "read_file", payload_json='{"path": "README.md"}'),
    ToolResult("2", "read_file", result_json='"# Cache"'),
    PlannerNote("Measure before the next change."),
    ToolCall("3", "bash", payload_json='{"command": "make bench"}'),
)


@pytest.fixture
def store() -> Generator[SyncStore]:
    with open_sync_store("memory:") as opened:
        yield opened


@pytest.fixture
def loops(store: SyncStore) -> SyncLoopMemory:
    return SyncLoopMemory(store, SyncMemoryClient(store), count_tokens=estimate_tokens)


def worked(store: SyncStore) -> None:
    stored(store, list(map(new_event, WORK)))


def me(store: SyncStore) -> SyncMemoryClient:
    return SyncMemoryClient(store)


def test_a_context_has_decisions_changes_and_open_calls(store: SyncStore, loops: SyncLoopMemory) -> None:
    worked(store)
    me(store).of(LOOP.principal).remember(key="language", value="english")
    context = loops.hydrate_pre_task(LOOP, "Answer in which language?")
    assert '"language": "english"' in context.text
    assert context.text.endswith(
        """\
Decided:
- "I'll use SQLite for the cache."
- "Measure before the next change."
Changed:
- "wrote cache.py"
Read:
- "read README.md"
Tools used:
- "write_file"
- "read_file"
The latest message of the user:
- "Make the cache faster."
Open:
- "bash({\\"command\\": \\"make bench\\"})"
</loop>"""
    )
    assert context.tokens == estimate_tokens(context.text) <= 2_000
    assert {place.seq for place in context.messages if place.run == RUN} == {1, 2, 3, 4, 5, 6, 7, 8}
    assert context.event == store.load_run(AGENT, RUN).log[-1]
    assert context.event is not None
    data = context.event.data
    assert isinstance(data, InjectedContext)
    assert (data.text, data.token_count, data.source) == (context.text, context.tokens, "pre_task")
    assert data.records == context.records
    assert len(data.records) == 1
    assert context.text in str(build(store.load_run(AGENT, RUN), "openai-chat")[-1]["content"])


def test_switches_leave_out_decisions_and_files(store: SyncStore, loops: SyncLoopMemory) -> None:
    worked(store)
    context = loops.hydrate_pre_task(LOOP, "", decisions=False, files=False)
    assert "Decided:" not in context.text
    assert "Changed:" not in context.text
    assert "Read:" not in context.text
    assert "make bench" in context.text


def test_nothing_known_is_nothing_logged(store: SyncStore, loops: SyncLoopMemory) -> None:
    for context in (
        loops.hydrate_pre_task(LOOP, "a task"),
        loops.hydrate_post_compaction(LOOP),
        loops.hydrate_for_entities(LOOP, ["Kim"]),
    ):
        assert (context.text, context.tokens, context.event) == ("", 0, None)
    assert store.load_run(AGENT, RUN).version == 0


@pytest.mark.parametrize("count", [estimate_tokens, growing_count])
@given(runs(), st.integers(1, 900))
def test_contexts_fit_their_budget(count: CountTokens, events: list[Event], budget: int) -> None:
    with open_sync_store("memory:") as store:
        loops = SyncLoopMemory(store, SyncMemoryClient(store, count_tokens=count), count_tokens=count)
        stored(store, events)
        me(store).of(LOOP.principal).remember(key="style", value="short sentences " * 20)
        for context in (
            loops.hydrate_pre_task(LOOP, "style", max_tokens=budget),
            loops.hydrate_post_compaction(LOOP, max_tokens=budget),
        ):
            assert context.tokens == (count(context.text) if context.text else 0)
            assert context.tokens <= budget


@given(runs(), st.data())
def test_a_checkpoint_gives_the_same_context_as_the_whole_run(events: list[Event], data: st.DataObject) -> None:
    with open_sync_store("memory:") as store:
        loops = SyncLoopMemory(store, SyncMemoryClient(store), count_tokens=estimate_tokens)
        cut = data.draw(st.integers(0, len(events)))
        store.append_events(AGENT, RUN, *events[:cut])
        checkpoint = loops.checkpoint(LOOP)
        assert checkpoint.version == cut
        store.append_events(AGENT, RUN, *events[cut:])
        from_checkpoint = loops.hydrate_post_compaction(LOOP)
        from_the_run = loops.hydrate_post_compaction(LOOP, from_checkpoint=False)
        assert from_checkpoint.text == from_the_run.text
        assert from_checkpoint.messages == from_the_run.messages


@given(runs(), st.integers(1, 900))
def test_blocks_fit_their_budget(events: list[Event], budget: int) -> None:
    groups = lines_of(story_of(numbered(events)), AGENT, RUN)
    block = block_of(groups, budget, growing_count)
    assert block.tokens == (growing_count(block.text) if block.text else 0)
    assert block.tokens <= budget
    assert block.left_out <= sum(map(len, groups))
    assert bool(block.text) == (block.left_out < sum(map(len, groups)))


def test_a_call_with_an_event_id_can_be_repeated(store: SyncStore, loops: SyncLoopMemory) -> None:
    worked(store)
    first = loops.hydrate_post_compaction(LOOP, event_id="AGENT-7")
    checkpoint = loops.checkpoint(LOOP, event_id="AGENT-8")
    stored(store, [new_event(PlannerNote("Something new."))])
    version = store.load_run(AGENT, RUN).version
    again = loops.hydrate_post_compaction(LOOP, event_id="AGENT-7")
    assert replace(again, left_out=0) == replace(first, left_out=0)
    assert loops.hydrate_pre_task(LOOP, "x", event_id="AGENT-7").text == first.text
    assert loops.checkpoint(LOOP, event_id="AGENT-8") == checkpoint
    assert store.load_run(AGENT, RUN).version == version


def test_entities_are_followed_to_a_depth(store: SyncStore, loops: SyncLoopMemory) -> None:
    memory = me(store).of(LOOP.principal)
    memory.remember(key="boss", value="Kim leads the team", entities=("Kim", "Team Blue"))
    memory.remember(key="team", value="Team Blue owns the cache", entities=("team blue", "cache"))
    memory.remember(key="cache", value="The cache is in Oslo", entities=("cache", "Oslo"))
    memory.remember(key="other", value="Nobody", entities=("Nobody",))
    contexts = [loops.hydrate_for_entities(LOOP, ["KIM"], depth) for depth in (0, 1, 2, 5)]
    assert [len(context.records) for context in contexts] == [1, 2, 3, 3]
    assert "Oslo" in contexts[2].text
    assert "Nobody" not in contexts[3].text
    assert contexts[0].event is not None
    assert loops.hydrate_for_entities(LOOP, []).text == ""


def test_memory_of_another_principal_stays_hidden(store: SyncStore, loops: SyncLoopMemory) -> None:
    me(store).of(Principal("acme", {"user": "43"})).remember(key="pin", value="sesame", entities=("Kim",))
    worked(store)
    assert "sesame" not in loops.hydrate_pre_task(LOOP, "the pin of Kim").text
    assert "sesame" not in loops.hydrate_for_entities(LOOP, ["Kim"], 5).text
    assert loops.graph_changes(LOOP).add == ()


def answers(count: int) -> list[Event]:
    return [
        new_event(data)
        for number in range(count)
        for data in (UserMessage(f"key{number}=value{number}"), AssistantMessage("Noted. " + "x" * 400))
    ]


def test_extraction_is_due_after_some_iterations(store: SyncStore) -> None:
    extractor = SaidPreferences()
    loops = SyncLoopMemory(store, SyncMemoryClient(store, extractor=extractor))
    due: list[int] = []
    for number in range(1, 13):
        stored(store, [new_event(UserMessage(f"key{number}=value{number}")), new_event(AssistantMessage("Noted."))])
        for _ in range(2):
            extracted = loops.extract(LOOP, every=5)
            assert extracted.is_due == bool(extracted.report.written)
            if extracted.is_due:
                due.append(number)
    assert due == [5, 10]
    assert len(me(store).of(LOOP.principal).list()) == 10
    assert len(loops.extract(LOOP).report.written) == 2
    assert len(extractor.calls) == 3


def test_answers_of_a_turn_that_continues_make_an_extraction_due_once(store: SyncStore) -> None:
    loops = SyncLoopMemory(store, SyncMemoryClient(store))
    due: list[int] = []
    stored(store, [new_event(UserMessage("I live in Leeds. Mend the cache."))])
    for number in range(1, 13):
        stored(store, [new_event(ToolCall(f"call-{number}", "run")), new_event(ToolResult(f"call-{number}", "run"))])
        if loops.extract(LOOP, every=5).is_due:
            due.append(number)
    assert due == [5, 10]


def test_an_extraction_for_one_user_leaves_another_due(store: SyncStore) -> None:
    loops = SyncLoopMemory(store, SyncMemoryClient(store, extractor=SaidPreferences()))
    stored(store, answers(2))
    other = Loop(AGENT, RUN, Principal("acme", {"user": "43"}))
    assert [loops.extract(loop, every=2).is_due for loop in (LOOP, other, LOOP)] == [True, True, False]


def test_extraction_is_due_once_when_the_context_fills(store: SyncStore) -> None:
    loops = SyncLoopMemory(store, SyncMemoryClient(store, extractor=SaidPreferences()), context_window=1_000)
    due: list[int] = []
    for number in range(1, 13):
        stored(store, answers(1))
        if loops.extract(LOOP, at=0.8).is_due:
            due.append(number)
        if number == 9:
            stored(store, [new_event(Compaction("Short."))])
    before = loops.progress(LOOP)
    assert due == [8]
    assert before.iteration == 12
    assert before.utilization == before.tokens / 1_000 < 0.8
    stored(store, answers(8))
    assert loops.extract(LOOP, at=0.8).is_due
    assert not loops.extract(LOOP, every=100, at=0.8).is_due


def test_progress_uses_the_tokens_that_the_provider_reported(store: SyncStore, loops: SyncLoopMemory) -> None:
    usage = {"usage": json.dumps({"prompt_tokens": 90_000, "completion_tokens": 10_000})}
    stored(store, [new_event(UserMessage("Hi.")), new_event(AssistantMessage("Hello."), labels=usage)])
    progress = loops.progress(LOOP)
    assert (progress.version, progress.iteration, progress.tokens, progress.utilization) == (2, 1, 100_000, 0.5)
    stored(store, [new_event(UserMessage("x" * 3_986))])
    assert loops.progress(LOOP).tokens == 101_000


class Failing:
    """An extractor that raises while ``fails`` is true."""

    name = "failing"
    fails = True

    def extract(self, new: RunSlice, /) -> Extraction:
        if self.fails:
            raise OSError("no model")
        return SaidPreferences(self.name).extract(new)


def test_a_failed_extraction_loses_nothing(store: SyncStore) -> None:
    failing = Failing()
    loops = SyncLoopMemory(store, SyncMemoryClient(store, extractor=failing))
    stored(store, answers(2))
    for extracted in (loops.extract(LOOP), loops.extract(LOOP, every=1)):
        assert extracted.report.status == "stopped"
        assert extracted.is_due
    failing.fails = False
    assert len(loops.extract(LOOP, every=2).report.written) == 2


def test_messages_of_a_run_without_memory_are_not_searched(store: SyncStore, loops: SyncLoopMemory) -> None:
    store.append_events(AGENT, RUN, *map(new_event, WORK), meta={"memory": False})
    assert loops.hydrate_pre_task(LOOP, "cache").text.startswith("<loop>")
    assert me(store).of(LOOP.principal).search("cache") == ()


def test_a_checkpoint_is_split_and_its_pointer_is_small(store: SyncStore, loops: SyncLoopMemory) -> None:
    long_ids = [new_event(PlannerNote(f"note {number}"), event_id=f"{number:0>500}") for number in range(900)]
    stored(store, long_ids)
    checkpoint = loops.checkpoint(LOOP, reason="compaction_starting", event_id="c" * 400)
    assert checkpoint.parts == 7
    parts = store.load_run(AGENT, RUN, types=("checkpoint",)).log
    assert len(parts) == 7
    for event in parts:
        assert isinstance(event.data, Checkpoint)
        assert event.data.checkpoint_id == checkpoint.checkpoint_id
        assert len(json.dumps(event.data.structured)) < 80_000
        assert "note" not in json.dumps(event.data.structured)
    assert len(checkpoint.pointer()) <= MOST_POINTER_BYTES
    assert loops.latest_checkpoint(LOOP) == checkpoint
    text = loops.hydrate_post_compaction(LOOP, max_tokens=50_000).text
    assert "note 0" in text
    assert "note 899" in text


def test_a_checkpoint_without_a_part_is_not_used(store: SyncStore, loops: SyncLoopMemory) -> None:
    stored(store, [new_event(PlannerNote(f"note {number}"), event_id=f"{number:0>500}") for number in range(300)])
    checkpoint = loops.checkpoint(LOOP)
    assert checkpoint.parts > 1
    store.redact_events(AGENT, RUN, [302])
    assert "note 299" in loops.hydrate_post_compaction(LOOP).text


def test_other_programs_checkpoints_are_ignored(store: SyncStore, loops: SyncLoopMemory) -> None:
    worked(store)
    own = loops.checkpoint(LOOP)
    stored(store, [new_event(Checkpoint("x", "bucket", {"form": "loop/1"})) for _ in range(300)])
    assert loops.latest_checkpoint(LOOP) == own


@pytest.mark.parametrize(
    "field",
    [
        {"version": 10**9},
        {"version": -1},
        {"expires": "9999-01-01T00:00:00"},
        {"expires": "2020-01-01T00:00:00"},
        {"parts": 10**9},
        {"utilization": "x"},
    ],
)
def test_damaged_checkpoints_are_ignored(store: SyncStore, loops: SyncLoopMemory, field: dict[str, JsonValue]) -> None:
    worked(store)
    own = loops.checkpoint(LOOP)
    part = store.load_run(AGENT, RUN).log[-1].to_map()["data"]
    assert isinstance(part, dict)
    data = part["structured"]
    assert isinstance(data, dict)
    stored(store, [new_event(Checkpoint("x", structured={**data, **field}))])
    assert loops.latest_checkpoint(LOOP) == own
    assert "I'll use SQLite" in loops.hydrate_post_compaction(LOOP).text


_POINTER = (
    b'{"checkpoint_id":"c","version":1,"iteration":1,"utilization":0,"reason":"","parts":1,'
    b'"created":"2026-01-01T00:00:00Z","expires":"2026-01-01T00:00:00"}'
)


@pytest.mark.parametrize("pointer", [b"", b"{}", b"null", b"\xff", b"[" * 1_000, b'{"checkpoint_id": 7}', _POINTER])
def test_other_bytes_are_no_pointer(pointer: bytes) -> None:
    with pytest.raises(DecodeError, match="pointer to a checkpoint"):
        LoopCheckpoint.from_pointer(LOOP, pointer)


def test_a_pointer_of_more_than_its_bytes_is_refused(loops: SyncLoopMemory) -> None:
    pointer = loops.checkpoint(LOOP).pointer()
    with pytest.raises(DecodeError, match="at most 1023 bytes"):
        LoopCheckpoint.from_pointer(LOOP, pointer + b" " * MOST_POINTER_BYTES)


def test_bad_arguments_are_refused_before_anything_is_written(store: SyncStore, loops: SyncLoopMemory) -> None:
    worked(store)
    version = store.load_run(AGENT, RUN).version
    bad: list[tuple[Callable[[], object], str]] = [
        (lambda: loops.hydrate_pre_task(LOOP, "x", max_tokens=0), "max_tokens"),
        (lambda: loops.hydrate_post_compaction(LOOP, max_tokens=True), "max_tokens"),
        (lambda: loops.hydrate_for_entities(LOOP, ["x"], -1), "depth"),
        (lambda: loops.hydrate_for_entities(LOOP, ["x"], 6), "depth"),
        (lambda: loops.hydrate_for_entities(LOOP, "Kim"), "ids"),
        (lambda: loops.extract(LOOP, every=0), "every"),
        (lambda: loops.extract(LOOP, at=1.1), "at must"),
        (lambda: loops.extract(LOOP, at=float("nan")), "at must"),
        (lambda: loops.checkpoint(LOOP, reason="x" * 65), "reason"),
        (lambda: loops.checkpoint(LOOP, retention_days=0), "retention_days"),
        (lambda: loops.checkpoint(LOOP, retention_days=float("nan")), "retention_days"),
        (lambda: loops.checkpoint(LOOP, retention_days=1e9), "retention_days"),
        (lambda: loops.checkpoint(LOOP, event_id="\u20ac" * 400), "event_id"),
        (lambda: SyncLoopMemory(store, SyncMemoryClient(store), context_window=0), "context_window"),
        (lambda: SyncLoopMemory(store, me(store).of(LOOP.principal)), "memory must be a SyncMemoryClient"),  # type: ignore[arg-type]  # a wrong type
        (lambda: Loop(AGENT, RUN, "acme"), "principal must be a Principal"),  # type: ignore[arg-type]  # a wrong type
    ]
    for call, words in bad:
        with pytest.raises(InvalidArgument, match=words):
            call()
    assert store.load_run(AGENT, RUN).version == version


def test_the_asynchronous_loop_memory_does_the_same(store: SyncStore, loops: SyncLoopMemory) -> None:
    worked(store)
    clock = SetClock()

    async def work() -> tuple[object, ...]:
        async with await open_store("memory:") as other:
            await other.append_events(AGENT, RUN, *map(new_event, WORK))
            twin = LoopMemory(other, MemoryClient(other), count_tokens=estimate_tokens, clock=clock)
            extracted = await twin.extract(LOOP)
            checkpoint = await twin.checkpoint(LOOP)
            contexts = [
                (await twin.hydrate_pre_task(LOOP, "cache")).text,
                (await twin.hydrate_post_compaction(LOOP)).text,
                (await twin.hydrate_for_entities(LOOP, ["Kim"])).text,
            ]
            restored = await twin.restore(checkpoint, provider="anthropic")
            changes = await twin.graph_changes(LOOP)
            latest = await twin.latest_checkpoint(LOOP)
            assert latest == checkpoint
            progress = await twin.progress(LOOP)
            return extracted.report.position, contexts, list(restored.transcript), changes.add, progress

    extracted = loops.extract(LOOP)
    checkpoint = loops.checkpoint(LOOP)
    contexts = [
        loops.hydrate_pre_task(LOOP, "cache").text,
        loops.hydrate_post_compaction(LOOP).text,
        loops.hydrate_for_entities(LOOP, ["Kim"]).text,
    ]
    restored = loops.restore(checkpoint, provider="anthropic")
    expected = (
        extracted.report.position,
        contexts,
        list(restored.transcript),
        loops.graph_changes(LOOP).add,
        loops.progress(LOOP),
    )
    assert asyncio.run(work()) == expected


def test_two_loops_of_one_principal_share_memory(store: SyncStore) -> None:
    loops = SyncLoopMemory(store, SyncMemoryClient(store, extractor=SaidPreferences()))
    second = Loop(AGENT, "task-8", LOOP.principal)
    stored(store, [new_event(UserMessage("language=english"))])
    loops.extract(LOOP)
    assert "english" in loops.hydrate_pre_task(second, "language").text
    assert story_of(store.load_run(AGENT, "task-8").log).decisions == ()
