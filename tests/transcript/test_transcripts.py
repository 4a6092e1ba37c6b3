"""What holds for the transcripts of every provider: exactness, growth, repair, windows, crossing to another."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import (
    Annotation,
    AssistantMessage,
    EventData,
    JsonValue,
    ModelRequest,
    PlannerNote,
    Redacted,
    Snapshot,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    new_event,
    open_store,
)
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.events.nested import Bounds
from agent_memory_log.transcript import (
    Finding,
    Transcript,
    build,
    import_transcript,
    model_request,
    parse,
    provider_names,
    repair,
    request,
    validate,
    window,
)
from agent_memory_log.transcript.json_types import is_list, is_map
from agent_memory_log.transcript.providers import find_provider
from tests.strategies import payloads
from tests.transcript import (
    transcripts_anthropic,
    transcripts_bedrock,
    transcripts_openai_chat,
    transcripts_openai_responses,
)
from tests.transcript.transcripts import (
    THOUGHT,
    Case,
    Message,
    assert_exact,
    holds_thought,
    json_values,
    numbered,
    run_of,
    snapshot_of,
    unhurried,
)

CASES = {
    module.CASE.provider: module.CASE
    for module in (transcripts_anthropic, transcripts_bedrock, transcripts_openai_chat, transcripts_openai_responses)
}
"""To add a provider: its module beside these, and its row."""

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())

PAIRS = list(itertools.permutations(CASES.values(), 2))


def test_every_provider_has_a_case() -> None:
    assert tuple(CASES) == provider_names()


# Exactness.


@pytest.mark.parametrize(
    ("case", "messages"),
    [
        pytest.param(case, messages, id=f"{case.provider}-{name}")
        for case in CASES.values()
        for name, messages in (*case.conversations.items(), *case.valid.items())
    ],
)
def test_what_is_made_by_hand_comes_back(case: Case, messages: list[Message]) -> None:
    others = next(messages for messages in case.valid.values() if messages)
    assert_exact(messages, case.provider)
    for message in messages:
        assert_exact([message], case.provider)
        assert_exact([*others, message, message, *others], case.provider)


@every_case
@unhurried
@given(data=st.data())
def test_any_conversation_comes_back(case: Case, data: st.DataObject) -> None:
    assert_exact(data.draw(st.lists(case.good, max_size=10)), case.provider)


@every_case
@unhurried
@given(data=st.data())
def test_any_maps_come_back(case: Case, data: st.DataObject) -> None:
    assert_exact(data.draw(case.hostile), case.provider)


@every_case
@unhurried
@given(data=st.data())
async def test_any_maps_come_back_from_a_store(case: Case, data: st.DataObject) -> None:
    messages = data.draw(case.hostile)
    async with open_store("memory:") as store:
        first = await import_transcript(store, "a", "r", messages, case.provider)
        again = await import_transcript(store, "a", "r", messages, case.provider)
        assert (again.version, again.inserted, again.events) == (first.version, 0, first.events)
        built = build(await store.load_run("a", "r"), case.provider)
    assert encode_canonical(built) == encode_canonical(messages)


@every_case
@unhurried
@given(data=st.data())
def test_a_longer_conversation_begins_with_the_same_events(case: Case, data: st.DataObject) -> None:
    messages = data.draw(case.hostile)
    end = data.draw(st.integers(0, len(messages)))
    whole, prefix = (parse(part, case.provider, source="run") for part in (messages, messages[:end]))
    assert [(e.event_id, e.type, e.data, e.labels) for e in prefix] == [
        (e.event_id, e.type, e.data, e.labels) for e in whole[: len(prefix)]
    ]


@every_case
def test_what_is_built_is_the_callers_own(case: Case) -> None:
    for messages in case.conversations.values():
        snapshot = snapshot_of(parse(messages, case.provider))
        built = build(snapshot, case.provider)
        expected = copy.deepcopy(built)
        _spoil(list(built))
        assert build(snapshot, case.provider) == expected


def _spoil(value: object) -> None:
    if is_map(value):
        for item in value.values():
            _spoil(item)
        value["spoilt"] = True
    elif is_list(value):
        for item in value:
            _spoil(item)
        value.append("spoilt")


# Growth.


@every_case
@unhurried
@given(data=st.data())
def test_a_transcript_that_is_updated_equals_one_built_anew(case: Case, data: st.DataObject) -> None:
    events = numbered(new_event(payload) for payload in data.draw(LIVE_PAYLOADS))
    events = data.draw(st.sampled_from([events, numbered(parse(data.draw(case.hostile), case.provider))]))
    limit = data.draw(st.none() | st.just(5))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=3)))
    snapshot = Snapshot("a", "r", events[: cuts[0] if cuts else 0], version=cuts[0] if cuts else 0)
    transcript = build(snapshot, case.provider, max_result_bytes=limit)
    for begin, end in itertools.pairwise([*cuts, len(events)] if cuts else [0, len(events)]):
        newer = Snapshot("a", "r", events[begin:end], version=end, after=begin)
        snapshot = snapshot.extend(newer)
        transcript.update(snapshot)
    whole = build(Snapshot("a", "r", events, version=len(events)), case.provider, max_result_bytes=limit)
    assert transcript == whole
    assert transcript.losses == whole.losses
    assert transcript.origins is not None
    assert whole.origins is not None
    assert (transcript.origins.owns, transcript.origins.parts) == (whole.origins.owns, whole.origins.parts)
    assert validate(transcript, case.provider) == validate(whole, case.provider)


@every_case
def test_an_update_looks_at_nothing_but_what_is_new(case: Case) -> None:
    log = numbered(new_event(payload) for payload in (UserMessage("Hi"), AssistantMessage("A"), UserMessage("Ho")))
    snapshot = Snapshot("a", "r", log[:2], version=2)
    transcript = build(snapshot, case.provider)
    first = transcript[0]
    first["content"] = "changed by its owner"
    longer = snapshot.extend(Snapshot("a", "r", log[2:], version=3, after=2))
    transcript.update(longer)
    assert len(transcript) == 3
    assert transcript[0] is first
    assert first["content"] == "changed by its owner"


@every_case
async def test_an_update_after_an_erasure_builds_anew(case: Case) -> None:
    messages = next(messages for messages in case.valid.values() if len(messages) > 1)
    async with open_store("memory:") as store:
        await import_transcript(store, "a", "r", messages, case.provider)
        snapshot = await store.load_run("a", "r")
        transcript = build(snapshot, case.provider)
        await store.redact_events("a", "r", [1])
        snapshot = snapshot.extend(await store.load_run("a", "r", after=snapshot.last_seq))
        transcript.update(snapshot)
        assert transcript == build(snapshot, case.provider)
        assert [loss.reason for loss in transcript.losses] == ["redacted"]
        assert [loss.seq for loss in transcript.losses] == [1]


@every_case
def test_an_update_to_what_is_not_newer_is_refused(case: Case) -> None:
    events = numbered([new_event(UserMessage("Hi")), new_event(UserMessage("Ho"))])
    snapshot = Snapshot("a", "r", events, version=2)
    for other in (
        Snapshot("a", "other", events, version=2),
        Snapshot("b", "r", events, version=2),
        Snapshot("a", "r", events, version=2, types=["user_message"]),
        Snapshot("a", "r", events[1:], version=2, after=1),
        Snapshot("a", "r", events[:1], version=1),
    ):
        with pytest.raises(InvalidArgument):
            build(snapshot, case.provider).update(other)
    with pytest.raises(InvalidArgument, match="made by build"):
        copy.copy(build(snapshot, case.provider)).update(snapshot)


@every_case
def test_a_transcript_is_a_plain_list_to_everybody_else(case: Case) -> None:
    for messages in case.valid.values():
        built = build(snapshot_of(parse(messages, case.provider)), case.provider)
        assert json.loads(json.dumps(built)) == messages
        assert msgspec.json.decode(msgspec.json.encode(built)) == messages
        for twin in (copy.deepcopy(built), copy.copy(built)):
            assert twin == built
            assert validate(twin, case.provider) == validate(built, case.provider)


# Whatever a run holds.


def residuals() -> st.SearchStrategy[JsonValue]:
    """What a hostile or a careless hand may have put where residuals are kept."""
    part = st.one_of(
        json_values,
        st.dictionaries(st.sampled_from(["role", "content", "type", "id", "signature", "data"]), json_values),
        st.lists(st.sampled_from(["role", "content", "type", "id", 5])),
        st.lists(st.one_of(st.integers(-1, 5), json_values), max_size=3),
    )
    keys = ["fields", "without", "inside", "parts", "message", "text", "inline", "function_call", "other"]
    residual = st.dictionaries(st.sampled_from(keys), part, max_size=3)
    return st.dictionaries(st.sampled_from([*CASES]), residual | json_values, max_size=2)


_texts = st.sampled_from(["", " ", "Hi", "secret?", '{"a": 1}'])
_ids = st.sampled_from(["", "c1", "c2", "a.b"])


def live_payloads() -> st.SearchStrategy[EventData]:
    """Payloads as runtimes record them, and with anything in ``structured``."""
    structured = st.none() | residuals()
    return st.one_of(
        st.builds(UserMessage, _texts, structured),
        st.builds(AssistantMessage, _texts, structured),
        st.builds(SystemMessage, _texts, structured),
        st.builds(
            Thinking, _texts, st.sampled_from(["", "s1", "s2"]), st.sampled_from([b"", b"x"]), structured=structured
        ),
        st.builds(ToolCall, _ids, _texts, _ids, _texts, structured=structured),
        st.builds(
            ToolResult,
            _ids,
            _texts,
            _ids,
            _texts,
            server_data=st.just('"top secret"'),
            error_message=_texts,
            preview=_texts,
            structured=structured,
        ),
        st.builds(Redacted, st.sampled_from(["user_message", "tool_call", "thinking", "anthropic.block", "note"])),
        st.builds(
            UnknownPayload,
            type=st.sampled_from([f"{name}.{what}" for name in CASES for what in ("message", "block")]),
            data=st.dictionaries(st.sampled_from(["block", "message", "role", "content"]), json_values, max_size=3),
        ),
        st.builds(ModelRequest, st.sampled_from([*CASES]), st.just("m"), system_hash=_texts),
        st.just(PlannerNote("note to self")),
        st.just(Annotation("remark")),
    )


# Made once: making a strategy takes longer than drawing from it.
LIVE_PAYLOADS = st.lists(live_payloads(), max_size=12)
ANY_PAYLOADS = st.lists(live_payloads() | payloads(), max_size=8)


@every_case
@unhurried
@given(data=st.data())
def test_no_run_is_beyond_building_and_repair(case: Case, data: st.DataObject) -> None:
    given_payloads = data.draw(ANY_PAYLOADS)
    built = build(run_of(*given_payloads), case.provider, max_result_bytes=data.draw(st.none() | st.just(3)))
    text = encode_canonical(built)
    assert b"top secret" not in text
    assert b"note to self" not in text
    assert all(isinstance(message, dict) for message in built)
    mended = repair(built, case.provider)
    assert validate(mended.transcript, case.provider) == []
    for size in (1, 4):
        window(built, case.provider, max_events=size)


@every_case
def test_what_is_no_part_of_a_conversation_is_left_out(case: Case) -> None:
    spoken: list[EventData] = [UserMessage("U"), AssistantMessage("A")]
    built = build(run_of(*spoken), case.provider)
    odd: list[EventData] = [PlannerNote("n"), Annotation("x"), ModelRequest(case.provider, "m")]
    assert build(run_of(spoken[0], *odd, spoken[1], *odd), case.provider) == built


@every_case
def test_types_no_builder_knows_are_reported(case: Case) -> None:
    built = build(run_of(UserMessage("U"), UnknownPayload("handoff", {}), UnknownPayload("x.block", {})), case.provider)
    assert [(loss.reason, loss.seq, loss.type) for loss in built.losses] == [
        ("unknown_type", 2, "handoff"),
        ("unknown_type", 3, "x.block"),
    ]
    assert "handoff" in built.losses[0].message


# Findings and repair.


@every_case
@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
def test_valid_conversations_are_valid(case: Case, recorded: bool) -> None:
    for messages in case.valid.values():
        transcript = _as_given(messages, case.provider, recorded=recorded)
        assert validate(transcript, case.provider) == []
        mended = repair(transcript, case.provider)
        assert mended.changes == ()
        assert encode_canonical(mended.transcript) == encode_canonical(messages)
        case.judge(messages)


@every_case
@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
@unhurried
@given(data=st.data())
def test_sound_conversations_are_valid(case: Case, recorded: bool, data: st.DataObject) -> None:
    messages = data.draw(case.sound)
    transcript = _as_given(messages, case.provider, recorded=recorded)
    assert validate(transcript, case.provider) == []
    assert repair(transcript, case.provider).changes == ()
    assert repair(transcript, case.provider).transcript == messages
    case.judge(messages)


def _as_given(messages: list[Message], provider: str, *, recorded: bool) -> list[Message]:
    return build(snapshot_of(parse(messages, provider)), provider) if recorded else messages


@every_case
@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
@unhurried
@given(data=st.data())
def test_what_is_repaired_is_valid(case: Case, recorded: bool, data: st.DataObject) -> None:
    messages = data.draw(case.hostile)
    transcript = _as_given(messages, case.provider, recorded=recorded)
    findings = validate(transcript, case.provider)
    mended = repair(transcript, case.provider)
    assert transcript == messages
    assert validate(mended.transcript, case.provider) == []
    assert bool(mended.changes) == bool(findings)
    again = repair(mended.transcript, case.provider)
    assert (again.changes, again.transcript) == ((), mended.transcript)
    twin = repair(_as_given(copy.deepcopy(messages), case.provider, recorded=recorded), case.provider)
    assert (twin.changes, twin.transcript) == (mended.changes, mended.transcript)
    _spoil(list(mended.transcript))
    assert transcript == messages
    for finding in findings:
        assert (finding.seq is not None) is recorded
        _look_up(messages, finding)
    assert findings == sorted(findings, key=lambda finding: finding.path[0])
    for change in mended.changes:
        assert change.message
        assert change.path
        assert isinstance(change.path[0], int)
        assert -1 < change.path[0] < len(messages)


def _look_up(messages: Sequence[Message], finding: Finding) -> object:
    """The place a finding names is there, but for a last key."""
    value: Any = messages
    for step in finding.path[:-1]:
        value = value[step]
    assert finding.rule
    assert finding.message
    return value


@every_case
@unhurried
@given(data=st.data())
def test_repaired_messages_of_a_good_shape_are_judged_valid(case: Case, data: st.DataObject) -> None:
    case.judge(repair(data.draw(st.lists(case.good, max_size=8)), case.provider).transcript)


@every_case
@unhurried
@given(data=st.data())
def test_after_an_edit_repair_leaves_no_reasoning_that_was_signed_before_it(case: Case, data: st.DataObject) -> None:
    messages = data.draw(case.sound)
    built = build(snapshot_of(parse(messages, case.provider)), case.provider)
    said = [index for index, message in enumerate(built) if message.get("role") == "user"]
    if not said:
        return
    edited = data.draw(st.sampled_from(said))
    built[edited] = build(run_of(UserMessage("something else")), case.provider)[0]
    mended = repair(built, case.provider)
    assert validate(mended.transcript, case.provider) == []
    texts = [encode_canonical(message) for message in mended.transcript]
    begin = next(index for index, text in enumerate(texts) if b"something else" in text)
    assert not holds_thought(mended.transcript[begin:])
    before = [encode_canonical(message) for message in messages[:edited]]
    assert all(text in texts[: begin + 1] for text in before if b"tool" not in text)


@every_case
def test_a_list_that_is_none_is_refused(case: Case) -> None:
    for transcript in (None, 5, "x", b"x", {"role": "user"}):
        given: Any = transcript
        for use in (validate, repair):
            with pytest.raises(Exception, match="must be a list of maps"):
                use(given, case.provider)
    wrong: Any = [5, None, "x"]
    assert all(finding.rule.endswith("_shape") for finding in validate(wrong, case.provider))
    assert [finding.path[0] for finding in validate(wrong, case.provider)] == [0, 1, 2]
    assert repair(wrong, case.provider).transcript == []


def test_a_transcript_of_another_provider_is_refused() -> None:
    built = build(run_of(UserMessage("U")), "anthropic")
    uses: list[Callable[[], object]] = [
        lambda: validate(built, "openai-chat"),
        lambda: repair(built, "openai-chat"),
        lambda: window(built, "openai-chat", max_events=1),
    ]
    for use in uses:
        with pytest.raises(InvalidArgument, match="is for anthropic, not for openai-chat"):
            use()


# Live runs and crossing.


@st.composite
def live_runs(draw: st.DrawFn) -> list[EventData]:
    """Whole runs as a runtime records them: parallel and nested calls, errors, ids used again, thinking before all."""
    run: list[EventData] = [SystemMessage("Be kind.")] if draw(st.booleans()) else []
    number = 0
    for turn in range(draw(st.integers(0, 3))):
        run.append(UserMessage(f"question {turn}"))
        for _ in range(draw(st.integers(0, 2))):
            number += 1
            if draw(st.booleans()):
                run.append(Thinking(text=f"{THOUGHT} {number}", signature=f"{THOUGHT} signed {number}", final=True))
            if draw(st.booleans()):
                run.append(AssistantMessage(draw(st.sampled_from(["Let me look.", ""]))))
            asked = [
                ToolCall(
                    draw(st.sampled_from(["call", "a.b", "x" * 70])) + str(n),
                    draw(st.sampled_from(NAMES)),
                    payload_json=text,
                )
                for n, text in enumerate(
                    draw(st.lists(st.sampled_from(["", "{}", '{"id": 7}']), min_size=1, max_size=3))
                )
            ]
            run += asked
            answers: list[EventData] = []
            for one in asked:
                if draw(st.booleans()):
                    run.append(ToolCall("inner", "inner.tool", one.tool_call_id))
                    run.append(ToolResult("inner", "inner.tool", one.tool_call_id, result_json='"inner"'))
                answers.append(
                    ToolResult(one.tool_call_id, one.tool_name, error_message="timeout")
                    if draw(st.booleans())
                    else ToolResult(
                        one.tool_call_id, one.tool_name, result_json=draw(st.sampled_from(["", "1", '{"a": 1}']))
                    )
                )
            run += draw(st.permutations(answers))
        run.append(AssistantMessage(f"answer {turn}"))
    return run


NAMES = ["orders.find", "find", "mcp__s__t", "a--b", "a-b.c", "Grüße", "a b", "-.", "x-_2e-y"]


@every_case
@unhurried
@given(run=live_runs())
def test_runs_recorded_live_are_valid_for_every_provider(case: Case, run: list[EventData]) -> None:
    snapshot = run_of(*run)
    built = build(snapshot, case.provider)
    assert validate(built, case.provider) == []
    case.judge(built)
    assert b"inner" not in encode_canonical(built)
    _assert_no_thought(case, built)
    names = [data.tool_name for data in run if isinstance(data, ToolCall) and not data.parent_tool_call_id]
    again = [event.data for event in parse(built, case.provider)]
    assert [data.tool_name for data in again if isinstance(data, ToolCall)] == names
    assert_exact(list(built), case.provider)


def _assert_no_thought(case: Case, built: Sequence[Message]) -> None:
    without = find_provider(case.provider).without_reasoning
    assert not holds_thought([without(message) for message in built])


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda case: case.provider)
@unhurried
@given(data=st.data())
def test_a_run_of_one_provider_is_built_for_another(one: Case, other: Case, data: st.DataObject) -> None:
    messages = data.draw(one.sound)
    snapshot = snapshot_of(parse(messages, one.provider))
    built = build(snapshot, other.provider)
    _assert_no_thought(other, built)
    mended = repair(built, other.provider)
    assert validate(mended.transcript, other.provider) == []
    other.judge(mended.transcript)
    said = [event.data.message for event in snapshot.log if isinstance(event.data, UserMessage) and event.data.message]
    text = encode_canonical(mended.transcript).decode()
    assert all(json.dumps(one, ensure_ascii=False)[1:-1] in text for one in said)
    dropped = {loss.seq for loss in built.losses}
    for event in snapshot.log:
        if isinstance(event.data, UnknownPayload):
            assert event.seq in dropped


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda case: case.provider)
def test_what_another_provider_had_beside_a_payload_is_reported(one: Case, other: Case) -> None:
    kept: JsonValue = {one.provider: {"fields": {"x": 1}}}
    built = build(
        run_of(
            UserMessage("U", kept),
            Thinking(text="t", signature="s", structured=kept),
            ToolCall("c", "f", structured=kept),
            ToolResult("c", "f", result_json="1", structured=kept),
            UnknownPayload(f"{one.provider}.block", {"x": 1}),
        ),
        other.provider,
    )
    assert [(loss.reason, loss.seq) for loss in built.losses] == [
        ("other_provider", 1),
        ("reasoning", 2),
        ("other_provider", 3),
        ("other_provider", 4),
        ("other_provider", 5),
    ]
    assert b'"x"' not in encode_canonical(built)


# Results that are too large, or have too much.


@every_case
def test_a_large_result_is_omitted_when_asked(case: Case) -> None:
    large = "é" * 40_000
    snapshot = run_of(
        UserMessage("U"),
        ToolCall("a", "f"),
        ToolCall("b", "f"),
        ToolCall("c", "f"),
        ToolResult("a", "f", result_json=large, bounds=Bounds(returned=1, total=2, truncated=True)),
        ToolResult("b", "f", result_json="x" * 65_536),
        ToolResult("c", "f", error_message="x" * 65_537, preview="short"),
    )
    assert large in encode_canonical(build(snapshot, case.provider)).decode()
    built = build(snapshot, case.provider, max_result_bytes=65_536)
    assert [(loss.reason, loss.seq) for loss in built.losses] == [("size_limit", 5), ("size_limit", 7)]
    results = [decoded for decoded in _json_texts(built) if is_map(decoded) and "omitted" in decoded]
    assert results == [
        {
            "omitted": True,
            "reason": "size_limit",
            "preview": "é" * 1000,
            "bounds": {"Returned": 1, "Total": 2, "Truncated": True, "NextCursor": None, "RefinementHint": ""},
        },
        {"omitted": True, "reason": "size_limit", "preview": "short", "bounds": None},
    ]
    assert "x" * 65_536 in encode_canonical(built).decode()
    assert validate(built, case.provider) == []
    for limit in (1, 100, 1000):
        assert len(encode_canonical(build(snapshot, case.provider, max_result_bytes=limit))) < 2000 + 3 * limit


def _json_texts(value: object) -> list[Any]:
    if is_map(value):
        return [one for item in value.values() for one in _json_texts(item)]
    if is_list(value):
        return [one for item in value for one in _json_texts(item)]
    try:
        return [json.loads(value)] if isinstance(value, str) else []
    except ValueError:
        return []


_LIMITED: dict[str, Callable[[object], list[Message]]] = {
    "anthropic": lambda content: [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": content}]},
    ],
    "bedrock": lambda content: [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": content}}]},
    ],
    "openai-chat": lambda content: [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": content},
    ],
    "openai-responses": lambda content: [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": content},
    ],
}


@pytest.mark.parametrize(
    ("provider", "content", "size"),
    [
        ("anthropic", "é" * 50, 100),
        ("anthropic", [{"type": "text", "text": "x" * 100}], 100),
        ("anthropic", [{"type": "text", "text": "x" * 50, "cache_control": {"type": "ephemeral"}}], 50),
        ("anthropic", [{"type": "text", "text": "x"}, {"type": "image", "source": "y" * 100}], 1 + 128),
        ("bedrock", [{"text": "x" * 50}, {"text": "y" * 49}], 100),
        ("bedrock", [{"json": {"a": "é" * 46}}], 100),
        ("openai-chat", [{"type": "text", "text": "🧾" * 25}], 100),
        ("openai-chat", {"odd": "x" * 90}, 100),
        ("openai-responses", [{"type": "input_text", "text": "x" * 100}], 100),
    ],
)
def test_a_result_is_measured_by_what_the_model_is_sent(provider: str, content: object, size: int) -> None:
    given_messages = _LIMITED[provider](content)
    snapshot = snapshot_of(parse(given_messages, provider))
    assert build(snapshot, provider, max_result_bytes=size) == given_messages
    (loss,) = build(snapshot, provider, max_result_bytes=size - 1).losses
    assert loss.reason == "size_limit"


@every_case
@pytest.mark.parametrize("limit", [0, -1, 1.5, "1"])
def test_a_limit_that_is_none_is_refused(case: Case, limit: Any) -> None:
    with pytest.raises(InvalidArgument, match="max_result_bytes"):
        build(run_of(), case.provider, max_result_bytes=limit)


@every_case
def test_a_result_with_an_error_and_a_value_is_a_finding(case: Case) -> None:
    built = build(
        run_of(
            UserMessage("T"),
            AssistantMessage("A"),
            UserMessage("U"),
            ToolCall("a", "f"),
            ToolCall("b", "f"),
            ToolResult("a", "f", result_json="1"),
            ToolResult("b", "f", result_json="2", error_message="late"),
        ),
        case.provider,
    )
    cut = window(built, case.provider, since_turn=-1).transcript
    for transcript in (built, cut):
        findings = validate(transcript, case.provider)
        assert [(finding.rule, finding.seq) for finding in findings] == [("error_and_value", 7)]
    mended = repair(built, case.provider)
    assert [(change.change, change.seq) for change in mended.changes] == [("kept_value", 7)]
    assert mended.transcript == built
    assert validate(mended.transcript, case.provider) == []


# Windows.


@every_case
@unhurried
@given(data=st.data())
def test_a_window_is_a_valid_end_of_the_transcript(case: Case, data: st.DataObject) -> None:
    run = [*data.draw(live_runs()), UserMessage("and now?")]
    built = build(run_of(*run), case.provider)
    kind = data.draw(st.sampled_from(["max_events", "max_tokens", "since_turn"]))
    value = data.draw(st.integers(1, 30))
    limits: dict[str, Any] = {kind: value}
    turns = sum(isinstance(payload, UserMessage) for payload in run)
    if kind == "since_turn":
        limits[kind] = value = data.draw(st.integers(-turns - 1, turns).filter(bool))
    plain = data.draw(st.booleans())
    source: Any = data.draw(st.sampled_from([built, run_of(*run)])) if not plain else list(built)
    left = window(source, case.provider, **limits)
    assert validate(left.transcript, case.provider) == []
    kept = list(left.transcript)
    assert kept[-1] == built[-1]
    if left.transcript != built:
        assert left.left_out
        assert not holds_thought(left.transcript)
    else:
        assert left.left_out == ()
    if kind == "since_turn":
        said = sum(message.get("role") == "user" and "question" in json.dumps(message) for message in kept)
        assert left.fits
        expected = turns - value + 1 if value > 0 else min(-value, turns)
        assert said == expected - 1
    elif kind == "max_events" and not plain and left.fits:
        assert left.transcript.origins is not None
        assert sum(len(left.transcript.origins.events_of(index)) for index in range(len(kept))) <= value
    for index, message in enumerate(kept):
        seq = left.transcript.seq_at((index,))
        assert (seq is None) is plain
        if not plain and message.get("role") == "user" and "question" in json.dumps(message):
            assert seq is not None
            assert isinstance(run[seq - 1], (UserMessage, ToolResult))


@every_case
def test_nothing_made_by_hand_is_beyond_a_window(case: Case) -> None:
    for messages in case.conversations.values():
        for given_messages in (messages, *([message] for message in messages)):
            left = window(given_messages, case.provider, max_events=1)
            assert bool(left.left_out) == (left.transcript != given_messages)
        for message in messages:
            plain = find_provider(case.provider).without_reasoning(message)
            assert plain is None or find_provider(case.provider).without_reasoning(plain) is plain


@every_case
@unhurried
@given(data=st.data())
def test_no_transcript_is_beyond_a_window(case: Case, data: st.DataObject) -> None:
    messages = data.draw(case.hostile)
    left = window(messages, case.provider, max_events=data.draw(st.integers(1, 8)))
    assert len(left.transcript) <= len(messages)
    assert bool(left.left_out) == (left.transcript != messages)


@every_case
def test_a_long_turn_is_cut_between_rounds(case: Case) -> None:
    rounds: list[EventData] = []
    for number in range(50):
        rounds += [ToolCall(f"c{number}", "f"), ToolResult(f"c{number}", "f", result_json=str(number))]
    built = build(run_of(UserMessage("U"), AssistantMessage("A"), UserMessage("long"), *rounds), case.provider)
    left = window(built, case.provider, max_events=21)
    assert left.fits
    assert left.transcript == [built[2], *built[-20:]]
    assert [loss.reason for loss in left.left_out] == ["window", "window"]
    assert [loss.seq for loss in left.left_out] == [1, 4]
    assert [loss.message for loss in left.left_out] == [
        "messages 0 to 1 of the transcript",
        "messages 3 to 82 of the transcript",
    ]
    assert validate(left.transcript, case.provider) == []
    least = window(built, case.provider, max_events=1)
    assert not least.fits
    assert least.transcript == [built[2], *built[-2:]]


@every_case
def test_tokens_are_counted_as_asked(case: Case) -> None:
    built = build(run_of(UserMessage("1"), AssistantMessage("2"), UserMessage("3")), case.provider)
    left = window(built, case.provider, max_tokens=1, count_tokens=lambda _: 1)
    assert (left.transcript, left.fits) == ([built[-1]], True)
    assert window(built, case.provider, max_tokens=2, count_tokens=lambda _: 1).transcript == [built[-1]]
    assert window(built, case.provider, max_tokens=3, count_tokens=lambda _: 1).transcript == built
    assert not window(built, case.provider, max_tokens=1).fits
    assert window(built, case.provider, max_tokens=1000).transcript == built
    assert window([], case.provider, max_tokens=1).transcript == []


@every_case
@pytest.mark.parametrize(
    ("limits", "match"),
    [
        ({"max_events": 0}, "max_events"),
        ({"max_events": "1"}, "max_events"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"since_turn": 0}, "since_turn"),
        ({"since_turn": 3}, "has 2 turns"),
    ],
)
def test_limits_that_are_none_are_refused(case: Case, limits: Mapping[str, Any], match: str) -> None:
    built = build(run_of(UserMessage("U"), AssistantMessage("A"), UserMessage("V")), case.provider)
    with pytest.raises(InvalidArgument, match=match):
        window(built, case.provider, **limits)


# Requests.


@every_case
def test_a_request_is_recorded_once_and_read_back(case: Case) -> None:
    tools = case.tools("orders--find", "D", {"type": "object"})
    first = model_request(run_of(), case.provider, model="m1", system="S", tools=tools, parameters={"temperature": 0.5})
    assert (first.system, first.tools) == ("S", tools)
    snapshot = run_of(first, UserMessage("U"))
    second = model_request(snapshot, case.provider, model="m2", system="S", tools=tools)
    assert (second.system, second.tools) == (None, None)
    assert (second.system_hash, second.tools_hash) == (first.system_hash, first.tools_hash)
    third = model_request(snapshot, case.provider, model="m2", system="other", tools=None)
    assert (third.system, third.tools, third.tools_hash) == ("other", None, "")
    package = find_provider(case.provider)
    found = request(run_of(first, UserMessage("U"), second), case.provider)
    transcript = found.pop(package.messages_key)
    assert transcript[-1] == build(run_of(UserMessage("U")), case.provider)[-1]
    assert "m2" in found.values()
    assert found[package.tools_key] == tools
    assert "temperature" not in found
    assert "S" in json.dumps([found, transcript])
    _spoil(found[package.tools_key])
    assert request(run_of(first), case.provider)[package.tools_key] == tools
    assert request(run_of(first), case.provider)["temperature"] == 0.5


@every_case
def test_what_is_asked_of_another_provider_is_carried_over(case: Case) -> None:
    for other in CASES.values():
        if other is case:
            continue
        tool: tuple[str, str, Mapping[str, JsonValue]] = ("find", "D", {"type": "object", "properties": {"id": {}}})
        asked = model_request(run_of(), other.provider, model="m", system="Be kind.", tools=other.tools(*tool))
        found = request(run_of(asked, UserMessage("U")), case.provider)
        assert "model" not in found
        assert found[find_provider(case.provider).tools_key] == case.tools(*tool)
        assert json.dumps(found).count("Be kind.") == 1


@every_case
@pytest.mark.parametrize("leading", [False, True])
def test_what_was_recorded_is_what_a_transcript_is_repaired_and_cut_for(case: Case, leading: bool) -> None:
    tools = case.tools("f", "D", {"type": "object"})
    asked = model_request(run_of(), case.provider, model="m", system=None if leading else "S", tools=tools)
    first = [SystemMessage("S")] if leading else []
    events = [event.data for event in parse(_REASONED[case.provider], case.provider)]
    snapshot = run_of(*first, asked, *events, UserMessage("again"), ToolCall("c2", "f"))
    built = build(snapshot, case.provider)
    asked_with = request(snapshot, case.provider)
    assert {finding.rule for finding in validate(built, case.provider)} == {"unanswered_call"}
    assert validate(built, case.provider, request=asked_with) == validate(built, case.provider)
    assert [change.change for change in repair(built, case.provider).changes] == ["answered_call"]
    for mended in (repair(built, case.provider), repair(built, case.provider, request=asked_with)):
        assert not set(mended.request) & {"messages", "input"}
        assert mended.request["tools" if "tools" in mended.request else "toolConfig"] == tools
        assert validate(mended.transcript, case.provider) == []
        assert validate(mended.transcript, case.provider, request=mended.request) == []
        assert repair(mended.transcript, case.provider).changes == ()
    left = window(repair(built, case.provider).transcript, case.provider, since_turn=-1)
    assert validate(left.transcript, case.provider, request=left.request) == []
    assert left.request == repair(built, case.provider).request


@every_case
def test_a_request_to_another_provider_since_changes_nothing(case: Case) -> None:
    other = next(one for one in CASES if one != case.provider)
    events = [event.data for event in parse(_REASONED[case.provider], case.provider)]
    mine = model_request(run_of(), case.provider, model="m", system="S")
    built = build(run_of(mine, *events, model_request(run_of(), other, model="n", system="T")), case.provider)
    mended = repair(built, case.provider)
    assert (mended.transcript, mended.changes) == (built, ())
    assert mended.request["modelId" if "modelId" in mended.request else "model"] == "m"
    assert validate(mended.transcript, case.provider, request=mended.request) == []


_REASONED: dict[str, list[Message]] = {
    "anthropic": [
        {"role": "user", "content": "U"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": THOUGHT, "signature": "1"},
                {"type": "text", "text": "A"},
            ],
        },
    ],
    "bedrock": [
        {"role": "user", "content": [{"text": "U"}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": THOUGHT, "signature": "1"}}},
                {"text": "A"},
            ],
        },
    ],
    "openai-chat": [{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}],
    "openai-responses": [
        {"role": "user", "content": "U"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": THOUGHT},
        {"role": "assistant", "content": "A"},
    ],
}


@every_case
def test_nothing_is_asked_where_nothing_was_recorded(case: Case) -> None:
    package = find_provider(case.provider)
    assert request(run_of(UserMessage("U")), case.provider) == {
        package.messages_key: build(run_of(UserMessage("U")), case.provider)
    }
    erased = run_of(Redacted("model_request"), UserMessage("U"), ModelRequest(case.provider, "m", system_hash="gone"))
    assert "m" in request(erased, case.provider).values()


@every_case
def test_instructions_recorded_before_the_conversation_are_asked_with(case: Case) -> None:
    found = request(run_of(SystemMessage("Be kind."), SystemMessage("Be brief."), UserMessage("U")), case.provider)
    text = json.dumps(found)
    assert text.count("Be kind.") == text.count("Be brief.") == 1


@pytest.mark.parametrize("provider", ["", "openai", "ANTHROPIC", None, []])
def test_an_unknown_provider_is_refused_with_those_known(provider: Any) -> None:
    uses: list[Callable[[], object]] = [lambda: parse([], provider), lambda: build(run_of(), provider)]
    for use in uses:
        with pytest.raises(InvalidArgument, match=", ".join(provider_names())):
            use()


def test_a_transcript_without_a_run_knows_no_seqs() -> None:
    transcript = Transcript([{"role": "user"}], provider="anthropic")
    assert transcript.seq_at((0,)) is None
    built = build(run_of(UserMessage("U")), "anthropic")
    assert [built.seq_at(path) for path in ((0,), (0, "content", 0), (0, "content", 9), (1,), (), ("x",), (-1,))] == [
        1,
        1,
        1,
        None,
        None,
        None,
        None,
    ]
