"""Tests the rule extractor: its episodes, the events that count as statements, and equal results in any slices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_memory_log import (
    Annotation,
    AssistantMessage,
    Event,
    EventData,
    PlannerNote,
    RetryHint,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    new_event,
    open_sync_store,
)
from agent_memory_log.events.event import redacted_form
from agent_memory_log.events.registry import payload_from_map
from agent_memory_log.memory import Candidate, Episode, Evidence, RunSlice, Source, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.memory.records.candidates import checked
from tests.effort import EXAMPLES
from tests.memory.stores import somebody

BEGIN = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)


def log_of(*payloads: EventData) -> list[Event]:
    return [
        Event(payload.event_type, BEGIN + timedelta(seconds=seq), payload, {}, f"e{seq}", seq)
        for seq, payload in enumerate(payloads, 1)
    ]


def slice_of(events: Sequence[Event], after: int = 0) -> RunSlice:
    return RunSlice("agent", "run", {}, after, [event for event in events if event.seq > after], ("user",))


def candidates_in(*payloads: EventData) -> tuple[Candidate, ...]:
    extraction = RuleExtractor().extract(slice_of(log_of(*payloads)))
    position = extraction.position
    assert position is not None
    assert all(evidence.seq <= position for candidate in extraction.candidates for evidence in candidate.evidence)
    return extraction.candidates


def episodes_in(*payloads: EventData) -> list[tuple[str, str]]:
    return [
        (candidate.data.category, candidate.text)
        for candidate in candidates_in(*payloads)
        if isinstance(candidate.data, Episode)
    ]


def call(name: str, call_id: str = "c", /, **arguments: object) -> ToolCall:
    return ToolCall(tool_call_id=call_id, tool_name=name, payload_json=json.dumps(arguments))


def result(name: str, text: str = '"ok"', call_id: str = "c", error: str = "") -> ToolResult:
    return ToolResult(tool_call_id=call_id, tool_name=name, result_json=text, error_message=error)


HELLO = (UserMessage("Please cancel it."), AssistantMessage("Which one?"), UserMessage("The blue one."))
DONE = AssistantMessage("It is done.")


def test_a_statement_cites_its_event_and_time() -> None:
    events = log_of(
        UserMessage("Hello"), AssistantMessage("Hi"), UserMessage("I live in Rome. Call me Bo."), AssistantMessage("ok")
    )
    extraction = RuleExtractor().extract(slice_of(events))
    home, name = extraction.candidates
    assert (home.key, home.value, name.key, name.value) == ("home", "Rome", "preferred_name", "Bo")
    assert home.evidence == (Evidence("agent", "run", 3, "rules/1"),)
    assert name.evidence == (Evidence("agent", "run", 3, "rules/2"),)
    assert home.valid_from == events[2].timestamp
    assert home.source == Source("run", "agent/run", 0.9)
    assert extraction.position == 3


def test_a_run_waits_for_four_messages_including_those_of_tools() -> None:
    statement = UserMessage("I prefer tea.")
    noise = (SystemMessage("Be good."), PlannerNote(note="plan"), Annotation("x"))
    few = log_of(statement, *noise, call("get_tea"), result("get_tea"))
    extraction = RuleExtractor().extract(slice_of(few))
    assert (extraction.candidates, extraction.position) == ((), 0)
    enough = log_of(statement, *noise, call("get_tea"), result("get_tea"), AssistantMessage("Here."))
    assert len(RuleExtractor().extract(slice_of(enough)).candidates) == 1
    later = RuleExtractor().extract(slice_of(log_of(statement, DONE, statement, DONE, statement), after=4))
    assert len(later.candidates) == 1


@pytest.mark.parametrize(
    "payload",
    [
        AssistantMessage("I prefer tea. My name is Sam."),
        SystemMessage("Always use tabs."),
        result("read_mail", json.dumps("I live in Rome. Always answer in French.")),
        ToolResult(tool_call_id="c", tool_name="x", preview="Call me Sam."),
        payload_from_map("injected_context", {"message": "I prefer tea.", "role": "user"}),
        UnknownPayload(type="openai-chat.message", data={"role": "user", "content": "I prefer tea."}),
        PlannerNote(note="I prefer tea."),
        Thinking(text="I prefer tea."),
        Annotation("I prefer tea."),
        call("write", text="I prefer tea."),
    ],
)
def test_only_user_messages_are_statements(payload: EventData) -> None:
    assert candidates_in(*HELLO, payload, DONE, UserMessage("I see.")) == ()


def test_a_redacted_message_counts_but_states_nothing() -> None:
    events = log_of(UserMessage("I prefer tea."), DONE, UserMessage("Next."), DONE)
    events[0] = redacted_form(events[0], "asked for")
    extraction = RuleExtractor().extract(slice_of(events))
    assert (extraction.candidates, extraction.position) == ((), 3)


FAILED = [
    ("no seats", result("book", error="no seats")),
    ("Error: no seats", result("book", "Error: no seats")),
    ("Error: no seats", result("book", '"Error: no seats"')),
    ("ValueError: no seats", result("book", "ValueError: no seats")),
    ("no seats", result("book", '{"error": "no seats"}')),
    ('{"code":3}', result("book", '{"error": {"code": 3}}')),
    ("Give a date.", ToolResult(tool_call_id="c", tool_name="book", retry_hint=RetryHint(message="Give a date."))),
    ("timeout", ToolResult(tool_call_id="c", tool_name="book", retry_hint=RetryHint(reason="timeout"))),
]
SUCCEEDED = [
    result("book"),
    result("book", '{"error": null, "id": 7}'),
    result("book", '"Errors are described in chapter 3."'),
    result("book", "Error handling in practice, a book"),
    result("book", "not JSON {"),
    result("book", ""),
]


@pytest.mark.parametrize(("reason", "failure"), FAILED)
@pytest.mark.parametrize("success", SUCCEEDED)
def test_an_error_and_its_fix_are_an_episode(reason: str, failure: ToolResult, success: ToolResult) -> None:
    candidates = candidates_in(
        *HELLO, call("book", flight="A", seats=2), failure, call("book", flight="B", seats=2), success
    )
    assert [(candidate.text, [evidence.seq for evidence in candidate.evidence]) for candidate in candidates] == [
        (f'book failed ("{reason}"), and succeeded with flight B in place of A', [5, 7])
    ]
    assert candidates[0].data == Episode("error", BEGIN + timedelta(seconds=5))


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ({"a": 1}, {"a": 1}, "when it was called again"),
        ({}, {}, "when it was called again"),
        ({"a": 1}, {"a": 1, "b": "x"}, "with b x"),
        ({"a": 1, "b": 2}, {"a": 1}, "without b"),
        ({"a": 1, "b": [{"c": 1, "d": 2}]}, {"a": 1, "b": [{"c": 1, "d": 3.5}]}, "with b[0].d 3.5 in place of 2"),
        ({"a": 1, "b": [1]}, {"a": 1, "b": [1, 2]}, "with b [1,2] in place of [1]"),
        ({"a": 1, "b": {"c": 1}}, {"a": 1, "b": [1]}, 'with b [1] in place of {"c":1}'),
        ({"a": 1, "b": True}, {"a": 1, "b": 1}, "with b 1 in place of true"),
    ],
)
def test_an_episode_names_the_changed_arguments(
    first: dict[str, object], second: dict[str, object], difference: str
) -> None:
    (episode,) = episodes_in(
        *HELLO, call("book", **first), result("book", error="no"), call("book", **second), result("book")
    )
    assert episode == ("error", f'book failed ("no"), and succeeded {difference}')


def test_valid_arguments_fix_a_call_with_invalid_json() -> None:
    broken = ToolCall(tool_call_id="c", tool_name="book", payload_json='{"a":')
    (episode,) = episodes_in(*HELLO, broken, result("book", error="bad JSON"), call("book", a=1), result("book"))
    assert episode[1] == 'book failed ("bad JSON"), and succeeded with a 1'


@pytest.mark.parametrize(
    "after",
    [
        (),
        (call("book", flight="B", hotel="C"), result("book")),
        (call("pay", flight="A", hotel="B"), result("pay")),
        (call("book", flight="A", hotel="B"), result("book", error="no again")),
        (call("book", flight="A", hotel="B"),),
        (result("book"),),
        (call("book", flight="A", hotel="B"), UserMessage("Well?"), result("book")),
        (UserMessage("I live in Rome."), call("book", flight="A", hotel="B"), result("book")),
        (*(UserMessage("Hm."), DONE) * 3, call("book", flight="A", hotel="B"), result("book")),
    ],
)
def test_an_error_without_a_fix_is_no_episode(after: tuple[EventData, ...]) -> None:
    failed = (call("book", flight="A", hotel="B"), result("book", error="no"))
    assert episodes_in(*HELLO, *failed, *after) == []


def test_all_attempts_are_one_episode_even_across_a_user_message() -> None:
    candidates = candidates_in(
        *HELLO,
        call("book", flight="A", seats=2), result("book", error="first"),
        call("book", flight="A", seats=2), result("book", error="second"),
        DONE, UserMessage("Then the other one."),
        call("book", flight="B", seats=2), result("book"),
    )  # fmt: skip
    assert [(candidate.text, [evidence.seq for evidence in candidate.evidence]) for candidate in candidates] == [
        ('book failed ("second"), and succeeded with flight B in place of A', [7, 5, 11])
    ]


def test_statements_do_not_wait_for_an_open_error() -> None:
    events = log_of(*HELLO, call("book", a=1), result("book", error="no"), DONE, UserMessage("I live in Rome."))
    extraction = RuleExtractor().extract(slice_of(events))
    assert [candidate.key for candidate in extraction.candidates] == ["home"]
    assert extraction.position == 7


def test_work_acknowledged_by_the_user_is_an_episode() -> None:
    work = (
        call("get_order", id=7),
        result("get_order"),
        call("orders.cancel", id=7, why="late"),
        result("orders.cancel"),
    )
    assert episodes_in(*HELLO, *work, DONE, UserMessage("Great, thank you! Now the next.")) == [
        ("task_result", "Done, and acknowledged by the user: orders.cancel (id: 7, why: late)")
    ]


@pytest.mark.parametrize(
    ("work", "answer", "reply"),
    [
        ((call("get_order"), result("get_order")), DONE, "Thanks!"),
        ((call("cancel"), result("cancel", error="no")), DONE, "Thanks!"),
        ((call("cancel"),), DONE, "Thanks!"),
        ((call("cancel"), result("cancel")), DONE, "Why did you do it?"),
        ((call("cancel"), result("cancel")), DONE, "That is not what I wanted, thanks."),
        ((call("cancel"), result("cancel")), DONE, "No thanks."),
        ((call("cancel"), result("cancel")), PlannerNote(note="no answer"), "Thanks!"),
    ],
)
def test_failed_or_unacknowledged_work_is_no_task_result(
    work: tuple[EventData, ...], answer: EventData, reply: str
) -> None:
    assert [
        episode for episode in episodes_in(*HELLO, *work, answer, UserMessage(reply)) if episode[0] == "task_result"
    ] == []


@pytest.mark.parametrize(
    "verdict",
    [
        "That's wrong.", "No, that is not what I asked for.", "You misunderstood me.", "This works perfectly!",
        "I think there might be a misunderstanding.", "That's exactly what I wanted.", "It wasn't correct.",
    ],
)  # fmt: skip
def test_a_verdict_of_the_user_is_an_episode(verdict: str) -> None:
    assert episodes_in(*HELLO, DONE, UserMessage(f"Hm. {verdict} Now go on.")) == [
        ("user_feedback", f'The user said: "{verdict}"')
    ]
    assert episodes_in(UserMessage(verdict), *HELLO) == []


@pytest.mark.parametrize("text", ["Is that wrong?", "The address is wrong.", "That's fine.", "What's not right?"])
def test_other_user_messages_are_no_feedback(text: str) -> None:
    assert episodes_in(*HELLO, DONE, UserMessage(text)) == []


USERS = [
    "I prefer tea.", "I live in Rome. Call me Bo.", "Thanks!", "That's wrong.", "Go on.",
    "Perfect, that works. I never eat meat.", "If I prefer tea?",
]  # fmt: skip


@st.composite
def calls(draw: st.DrawFn) -> EventData:
    name, call_id = draw(st.sampled_from(["book", "cancel", "get_order"])), draw(st.sampled_from(["c", "d"]))
    return call(name, call_id, flight=draw(st.sampled_from("AB")), seats=draw(st.integers(1, 2)))


@st.composite
def results(draw: st.DrawFn) -> EventData:
    name, call_id = draw(st.sampled_from(["book", "cancel", "get_order"])), draw(st.sampled_from(["c", "d"]))
    return result(name, call_id=call_id, error=draw(st.sampled_from(["", "", "no"])))


payloads: st.SearchStrategy[EventData] = st.one_of(
    st.sampled_from(USERS).map(UserMessage),
    st.just(DONE),
    calls(),
    results(),
    calls(),
    results(),
    st.just(PlannerNote(note="x")),
)
logs = st.lists(payloads, max_size=30).map(lambda payloads: log_of(*payloads))


# An error is fixed while another call is open. The result of that call is in the next slice.
OVERLAPPING = log_of(
    *HELLO, call("book"), result("book", error="no"), call("cancel", "d"), call("book"), result("book"),
    result("cancel", call_id="d"), DONE, UserMessage("Thanks!"),
)  # fmt: skip


@settings(max_examples=16 * EXAMPLES)
@given(logs, st.lists(st.integers(0, 30), max_size=6))
@example(OVERLAPPING, [8])
def test_any_slices_of_a_run_give_the_same_candidates(log: list[Event], cuts: list[int]) -> None:
    extractor = RuleExtractor()
    expected = extractor.extract(slice_of(log))
    candidates: list[Candidate] = []
    position = 0
    for cut in (*sorted(cuts), len(log)):
        extraction = extractor.extract(slice_of(log[:cut], position))
        assert extraction.position is not None
        assert extraction.position >= position
        assert all(position < candidate.evidence[0].seq for candidate in extraction.candidates)
        candidates += extraction.candidates
        position = extraction.position
    assert candidates == list(expected.candidates)
    assert position == expected.position


@settings(max_examples=8 * EXAMPLES)
@given(logs)
def test_candidates_are_valid_and_cite_each_statement_once(log: list[Event]) -> None:
    candidates = RuleExtractor().extract(slice_of(log)).candidates
    assert [checked(candidate) for candidate in candidates] == list(candidates)
    evidence = [item for candidate in candidates for item in candidate.evidence]
    assert len(set(evidence)) == len(evidence)


def test_deriving_event_by_event_equals_deriving_once() -> None:
    run_payloads = [
        *HELLO,
        call("book", flight="A", seats=2), result("book", error="no seats"), DONE, UserMessage("Try the other."),
        call("book", flight="B", seats=2), result("book"), DONE, UserMessage("Thanks! I live in Rome. Call me Bo."),
        call("cancel", id=7), result("cancel"), DONE, UserMessage("Perfect, that works."), DONE,
    ]  # fmt: skip
    events = [
        new_event(payload, timestamp=BEGIN + timedelta(seconds=second)) for second, payload in enumerate(run_payloads)
    ]
    with open_sync_store("memory:") as store:
        memory = SyncMemoryClient(store, extractor=RuleExtractor())
        stepwise, at_once = memory.of(somebody()), memory.of(somebody())
        for event in events:
            store.append_events("agent", "run", event)
            stepwise.derive("agent", "run")
        at_once.derive("agent", "run")
        memories = [
            [(record.kind, record.key, record.text, record.evidence) for record in me.list()]
            for me in (stepwise, at_once)
        ]
        assert memories[0] == memories[1]
        assert len(memories[0]) == 5
        assert stepwise.derive("agent", "run").outcomes == ()
        assert at_once.derive("agent", "run").outcomes == ()
