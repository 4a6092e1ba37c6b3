"""Tests of restored conversations: valid, within the budget, and without the loss of a decision or an open call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import (
    AssistantMessage,
    Event,
    InjectedContext,
    PlannerNote,
    Reader,
    Snapshot,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
    decode_event,
    new_event,
    open_sync_store,
)
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.models.tokens import estimate_tokens
from agent_memory_log.processor import Loop, LoopCheckpoint, Restored, SyncLoopMemory
from agent_memory_log.processor.restoring import restored, without
from agent_memory_log.recording import SyncRunRecorder
from agent_memory_log.transcript import WireMessage, build, model_request, provider_names, repair, validate
from tests.memory.stores import SetClock
from tests.processor.runs import AGENT, LOOP, RUN, growing_count, recorded_runs, runs, stored
from tests.transcript.transcripts import numbered, snapshot_of

PROVIDERS = provider_names()
ENOUGH = 50_000


def text_of(conversation: Restored) -> str:
    return encode_json(list(conversation.transcript)).decode()


def users_in(messages: Sequence[WireMessage]) -> int:
    return sum(message.get("role") == "user" for message in messages)


def flaws(run: Snapshot, provider: str, budget: int) -> Iterator[str]:
    """Yield the promises that a restored conversation breaks."""
    conversation = restored(run, provider, budget, estimate_tokens)
    findings = validate(conversation.transcript, provider, request=conversation.request)
    findings += validate(list(conversation.transcript), provider, request=conversation.request)
    # A plain list that ends in an answer is a request to continue this answer. The next message is the user's here.
    yield from (f"not valid: {finding}" for finding in findings if finding.rule != "prefill")
    if conversation.tokens > budget:
        yield f"{conversation.tokens} tokens instead of {budget}"
    yield from cuts(run, provider, conversation)
    if conversation.summary and not conversation.summary.endswith(("not fit.", "not fit.\n</loop>")):
        yield from losses(conversation)


def cuts(run: Snapshot, provider: str, conversation: Restored) -> Iterator[str]:
    """Yield the differences from restoring everything that a cut does not explain."""
    if conversation.open_calls != Reader(run).open_tool_calls():
        yield "an open call is missing"
    notes = [event.data.note for event in run.log if isinstance(event.data, PlannerNote)]
    answers = [event.data.message for event in run.log if isinstance(event.data, AssistantMessage)]
    notes += [answer.removesuffix(" Fine?") for answer in answers if answer.startswith("I decided to use plan")]
    if not set(notes) <= set(conversation.decisions):
        yield "a decision is missing"
    restored_messages = list(conversation.transcript)
    run_messages = list(repair(build(run, provider), provider).transcript)
    if conversation.is_whole:
        if restored_messages != run_messages:
            yield "a whole conversation differs from the run"
        return
    contexts = frozenset(event.seq for event in run.log if isinstance(event.data, InjectedContext))
    run_messages = list(repair(build(without(run, contexts), provider), provider).transcript)
    if conversation.summary:
        if encode_json(conversation.summary)[1:-1] not in encode_json(restored_messages):
            yield "the conversation lacks its summary"
    elif users_in(restored_messages) != users_in(run_messages):
        yield "messages were cut without a summary"
    spoken = [message for message in restored_messages if message.get("role") not in ("system", "developer")]
    if len(spoken) > 1 and restored_messages[-1] != run_messages[-1] and "omitted" not in text_of(conversation):
        yield "the newest message is not the run's"


def losses(conversation: Restored) -> Iterator[str]:
    """Yield the open calls and decisions that a summary lacks."""
    summary = conversation.summary.replace("\\", "")
    for event in conversation.open_calls:
        if decode_event(event, ToolCall).tool_name not in summary:
            yield f"the summary lacks the open call {event.data}"
    for decision in conversation.decisions:
        if encode_json(decision).decode()[1:-1].replace("\\", "") not in summary:
            yield f"the summary lacks the decision {decision!r}"


@pytest.mark.parametrize("provider", PROVIDERS)
@given(runs(), st.integers(200, 2_000))
def test_random_runs_are_restored(provider: str, events: list[Event], budget: int) -> None:
    assert list(flaws(snapshot_of(numbered(events)), provider, budget)) == []


@given(runs(), st.integers(200, 2_000))
def test_budgets_hold_for_tokens_that_do_not_add_up(events: list[Event], budget: int) -> None:
    conversation = restored(snapshot_of(numbered(events)), "bedrock", budget, growing_count)
    assert sum(growing_count(encode_json(message).decode()) for message in conversation.transcript) <= budget


@pytest.mark.parametrize("budget", [200, 1_500])
@pytest.mark.parametrize("provider", sorted({exchange.provider for exchange, _ in recorded_runs()}))
def test_recorded_runs_are_restored(provider: str, budget: int) -> None:
    broken = [
        (exchange.name, flaw)
        for exchange, events in recorded_runs()
        if exchange.provider == provider
        for flaw in flaws(snapshot_of(numbered(events)), provider, budget)
    ]
    assert broken == []


def test_a_long_history_keeps_the_newest_turns_and_every_decision() -> None:
    turns = [
        data
        for number in range(40)
        for data in (
            UserMessage(f"Question {number}. " + "Words. " * 30),
            ToolCall(f"call{number}", "write_file", payload_json=f'{{"path": "src/{number}.py"}}'),
            ToolResult(f"call{number}", "write_file", result_json='"ok"'),
            PlannerNote(f"Decided thing number {number}."),
            AssistantMessage(f"Answer {number}."),
        )
    ]
    open_call = ToolCall("open", "deploy", payload_json='{"to": "production"}')
    run = snapshot_of(numbered(map(new_event, [*turns[:50], open_call, *turns[50:]])))
    conversation = restored(run, "anthropic", 3_000, estimate_tokens)
    assert not conversation.is_whole
    assert conversation.tokens <= 3_000
    for number in range(40):
        assert f"Decided thing number {number}." in conversation.summary
    assert 'deploy({\\"to\\": \\"production\\"})' in conversation.summary
    assert [event.data for event in conversation.open_calls] == [open_call]
    words = text_of(conversation)
    assert "Question 39" in words
    assert "call39" in words
    assert "Question 0." not in words
    assert conversation.decisions == tuple(f"Decided thing number {number}." for number in range(40))


def test_an_interrupted_call_is_kept_with_a_result_that_says_so() -> None:
    run = snapshot_of(numbered(map(new_event, [UserMessage("Go."), ToolCall("1", "deploy", payload_json="{}")])))
    conversation = restored(run, "openai-chat", 1_500, estimate_tokens)
    assert conversation.is_whole
    assert [event.seq for event in conversation.open_calls] == [2]
    assert "interrupted" in text_of(conversation)


def test_a_call_whose_result_was_erased_is_not_open() -> None:
    with open_sync_store("memory:") as store:
        loops = SyncLoopMemory(store, SyncMemoryClient(store))
        with SyncRunRecorder(store, AGENT, RUN) as recorder:
            recorder.user("Deploy it.")
            with recorder.tool_call("deploy", {"to": "production"}) as call:
                call.result("done")
        stored(store, [new_event(ToolCall("2", "deploy", payload_json='{"to": "staging"}'))])
        store.redact_events(AGENT, RUN, [3])
        conversation = loops.restore(loops.checkpoint(LOOP), provider="openai-chat")
        assert [event.seq for event in conversation.open_calls] == [4]


def test_a_large_result_is_shortened_before_its_turn_is_cut() -> None:
    data = [
        UserMessage("Read it."),
        ToolCall("1", "read", payload_json="{}"),
        ToolResult("1", "read", result_json='"' + "word " * 9_000 + '"'),
    ]
    conversation = restored(snapshot_of(numbered(map(new_event, data))), "anthropic", 1_500, estimate_tokens)
    assert conversation.tokens <= 1_500
    assert "Read it." in text_of(conversation)
    assert "omitted" in text_of(conversation)


def test_instructions_stay_and_are_not_counted() -> None:
    rules = "Be kind. " * 500
    data = [SystemMessage(rules), UserMessage("Hello. " * 500), AssistantMessage("Hi.")]
    for budget in (200, 1_500, 5_000):
        conversation = restored(snapshot_of(numbered(map(new_event, data))), "openai-chat", budget, estimate_tokens)
        assert conversation.transcript[0]["content"] == rules
        assert conversation.tokens <= budget


def test_the_provider_is_that_of_the_latest_request() -> None:
    run = snapshot_of(
        numbered([new_event(model_request(snapshot_of([]), "gemini", model="m")), new_event(UserMessage("Hi."))])
    )
    assert restored(run, None, 1_500, estimate_tokens).transcript.provider == "gemini"
    with pytest.raises(InvalidArgument, match="pass provider"):
        restored(snapshot_of(numbered([new_event(UserMessage("Hi."))])), None, 1_500, estimate_tokens)


@pytest.mark.parametrize("budget", [0, 199, True, 1.5, "9", None])
def test_other_budgets_are_refused(budget: object) -> None:
    with pytest.raises(InvalidArgument, match="max_recovery_tokens"):
        restored(snapshot_of([]), "anthropic", budget, estimate_tokens)  # type: ignore[arg-type]  # wrong on purpose


def test_checkpoints_are_restored_until_they_expire() -> None:
    clock = SetClock()
    with open_sync_store("memory:") as store:
        loops = SyncLoopMemory(store, SyncMemoryClient(store), clock=clock)
        stored(store, [new_event(UserMessage("Hi."))])
        checkpoint = loops.checkpoint(LOOP, retention_days=2)
        stored(store, [new_event(AssistantMessage("Hello."))])
        assert loops.latest_checkpoint(LOOP) == checkpoint
        conversation = loops.restore(LoopCheckpoint.from_pointer(LOOP, checkpoint.pointer()), provider="anthropic")
        assert "Hello." in text_of(conversation)
        assert conversation.version == checkpoint.version + 2
        clock.move(days=2)
        assert loops.latest_checkpoint(LOOP) is None
        with pytest.raises(CursorOutOfRange, match="expired at"):
            loops.restore(checkpoint, provider="anthropic")


def test_checkpoints_of_deleted_and_other_runs_are_refused() -> None:
    other = Loop(AGENT, "other", Principal("acme", {"user": "43"}))
    with open_sync_store("memory:") as store:
        loops = SyncLoopMemory(store, SyncMemoryClient(store))
        stored(store, [new_event(UserMessage("my secret"))])
        checkpoint = loops.checkpoint(LOOP)
        with pytest.raises(CursorOutOfRange, match="has no checkpoint"):
            loops.restore(LoopCheckpoint.from_pointer(other, checkpoint.pointer()), provider="anthropic")
        store.delete_run(AGENT, RUN)
        with pytest.raises(CursorOutOfRange, match="has no checkpoint"):
            loops.restore(checkpoint, provider="anthropic")
        assert loops.latest_checkpoint(LOOP) is None


def test_copies_of_erased_words_are_left_out() -> None:
    with open_sync_store("memory:") as store:
        memory = SyncMemoryClient(store)
        loops = SyncLoopMemory(store, memory, count_tokens=len)
        stored(
            store,
            list(map(new_event, (UserMessage("Use the code word tangerine."), PlannerNote("Keep tangerine safe.")))),
        )
        context = loops.hydrate_pre_task(LOOP, "the code word")
        assert "Keep tangerine safe." in context.text
        checkpoint = loops.checkpoint(LOOP)
        stored(
            store, list(map(new_event, (InjectedContext("unrelated"), UserMessage("Go on."), AssistantMessage("Yes."))))
        )
        assert "tangerine" in text_of(loops.restore(checkpoint, ENOUGH, provider="anthropic"))
        store.redact_events(AGENT, RUN, [1, 2])
        for budget in (600, ENOUGH):
            conversation = loops.restore(checkpoint, budget, provider="anthropic")
            assert "tangerine" not in text_of(conversation)
            assert "Go on." in text_of(conversation)
            assert conversation.decisions == ()
