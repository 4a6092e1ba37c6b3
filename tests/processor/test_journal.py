"""Tests of the story of a run: its decisions, files, open calls and failures."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory_log import (
    AssistantMessage,
    Compaction,
    Event,
    EventData,
    PlannerNote,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
    open_sync_store,
)
from agent_memory_log.processor.files import files_of
from agent_memory_log.processor.journal import Entry, Story, decisions_in, story_of
from tests.effort import EXAMPLES
from tests.processor.runs import AGENT, RUN, runs, stored
from tests.transcript.transcripts import numbered


def read(*data: EventData) -> Story:
    """Return the story of a run with these payloads."""
    return story_of(numbered(map(new_event, data)))


def texts(entries: tuple[Entry, ...]) -> list[str]:
    return [entry.text for entry in entries]


def call(call_id: str, tool: str, **arguments: object) -> ToolCall:
    return ToolCall(call_id, tool, payload_json=json.dumps(arguments))


@settings(max_examples=4 * EXAMPLES)
@given(runs(), st.data())
def test_events_of_the_story_replace_the_run(events: list[Event], data: st.DataObject) -> None:
    log = numbered(events)
    cut = data.draw(st.integers(0, len(log)))
    sources = story_of(log[:cut]).events()
    assert story_of(sources) == story_of(log[:cut])
    assert story_of([*sources, *log[cut:]]) == story_of(log)


@given(runs(), st.data())
def test_redactions_reach_the_story_through_its_events(events: list[Event], data: st.DataObject) -> None:
    with open_sync_store("memory:") as store:
        before = stored(store, events)
        ids = [event.event_id for event in story_of(before.log).events()]
        seqs = data.draw(st.sets(st.integers(1, len(events)), min_size=1))
        # A result that no recorder stored cannot be found after it is erased, so its call would be open again.
        erased = {seq for seq in seqs if not isinstance(before.log[seq - 1].data, ToolResult)}
        if erased:
            store.redact_events(AGENT, RUN, erased)
        sources = [event for event in store.find_events(AGENT, RUN, ids) if event is not None]
        newer = store.load_run(AGENT, RUN, after=before.version)
        story = story_of([*sorted(sources, key=lambda event: event.seq), *newer.log])
        assert not {event.seq for entry in story.entries() for event in entry.events} & erased


def test_decisions_are_notes_and_statements_of_the_assistant() -> None:
    story = read(
        UserMessage("Let's use tabs. What will you use?"),
        AssistantMessage(
            "I looked around. I'll use SQLite for the cache. Should I use WAL? We use it already.\n- Decision: no ORM"
        ),
        PlannerNote("Split the parser first."),
        AssistantMessage("Done with config.py v1.2, so let's go with it now."),
    )
    assert texts(story.decisions) == [
        "I'll use SQLite for the cache.",
        "Decision: no ORM",
        "Split the parser first.",
        "Done with config.py v1.2, so let's go with it now.",
    ]
    assert story.request is not None
    assert story.request.text == "Let's use tabs. What will you use?"


@pytest.mark.parametrize(
    "text",
    [
        "DECISION: tabs",
        "We've decided on tabs",
        "I have settled  on tabs",
        "We opted for tabs",
        "I'll go\twith tabs",
        "We will now switch to tabs",
        "I'm going to keep tabs",
        "We are going with tabs",
        "Let us stick to tabs",
        "I will use\xa0tabs",
    ],
)
def test_every_form_of_a_decision_is_read(text: str) -> None:
    assert decisions_in(f"{text}.") == [f"{text}."]


@pytest.mark.parametrize(
    "text",
    [
        "Should we use SQLite?",
        "You decided that.",
        "I will look at the use of it.",
        "They chose Rust.",
        "I'll use the web search tool.",
        "x" * 10_000,
    ],
)
def test_other_sentences_are_no_decisions(text: str) -> None:
    assert decisions_in(text) == []


@pytest.mark.parametrize(
    ("tool", "arguments", "files"),
    [
        ("write_file", {"path": "a.py", "content": "x"}, {"a.py": "wrote"}),
        ("Edit", {"file_path": "/src/a.py", "old_string": "path"}, {"/src/a.py": "edited"}),
        ("MultiEdit", {"file_path": "a"}, {"a": "edited"}),
        ("fs.deleteFile", {"filename": "a"}, {"a": "deleted"}),
        ("move", {"source": "a", "destination": "b"}, {"a": "moved", "b": "moved"}),
        ("Read", {"file_path": "a"}, {"a": "read"}),
        ("str_replace_based_edit_tool", {"command": "view", "path": "a"}, {"a": "read"}),
        ("str_replace_based_edit_tool", {"command": "create", "path": "a"}, {"a": "wrote"}),
        ("str_replace_based_edit_tool", {"command": "str_replace", "path": "a"}, {"a": "edited"}),
        ("read_files", {"paths": ["a", {"path": "b"}, 7, "x" * 600, "two\nlines"]}, {"a": "read", "b": "read"}),
        ("apply_patch", {"input": "*** Add File: a b\n+x\n*** Delete File: c\n"}, {"a b": "wrote", "c": "deleted"}),
        ("fetch", {"path": "https://example.org/a"}, {}),
        ("bash", {"command": "rm a.py"}, {}),
        ("run_tests", {"path": "tests"}, {"tests": "read"}),
    ],
)  # fmt: skip
def test_files_of_a_call(tool: str, arguments: dict[str, object], files: dict[str, str]) -> None:
    assert files_of(call("1", tool, **arguments)) == files


@pytest.mark.parametrize("payload", ["", "not json", "[1]", "null", "7", '{"path": 7}', '{"path": ""}', '{"path": ['])
def test_other_arguments_name_no_file(payload: str) -> None:
    assert files_of(ToolCall("1", "write_file", payload_json=payload)) == {}


def test_a_patch_in_plain_text_names_its_files() -> None:
    assert files_of(ToolCall("1", "apply_patch", payload_json="*** Update File: a.py\n")) == {"a.py": "edited"}


def test_a_call_names_at_most_twenty_files() -> None:
    assert len(files_of(call("1", "read", paths=[str(number) for number in range(999)]))) == 20


def test_files_are_changed_or_read_only_if_the_call_succeeded() -> None:
    story = read(
        call("1", "read_file", path="a"),
        ToolResult("1", "read_file", result_json='"x"'),
        call("2", "read_file", path="b"),
        ToolResult("2", "read_file", result_json='"x"'),
        call("3", "write_file", path="a"),
        ToolResult("3", "write_file", result_json='"ok"'),
        call("4", "write_file", path="c"),
        ToolResult("4", "write_file", error_message="disk full"),
        call("5", "edit_file", path="a"),
        ToolResult("5", "edit_file", result_json='"ok"'),
        call("6", "write_file", path="d"),
    )
    assert texts(story.changed) == ["edited a"]
    assert texts(story.read) == ["read b"]
    assert texts(story.failures) == ['write_file({"path": "c"}) failed: disk full']
    assert texts(story.open_calls) == ['write_file({"path": "d"})']
    assert texts(story.tools) == ["read_file", "write_file", "edit_file"]


def test_a_failure_that_was_put_right_is_not_open() -> None:
    story = read(
        call("1", "bash", command="make test"),
        ToolResult("1", "bash", error_message="2 failed"),
        call("2", "bash", command="make lint"),
        ToolResult("2", "bash", error_message="1 error"),
        call("3", "bash", command="make test"),
        ToolResult("3", "bash", result_json='"ok"'),
    )
    assert texts(story.failures) == ['bash({"command": "make lint"}) failed: 1 error']


def test_a_redaction_after_a_compaction_drops_its_summary() -> None:
    with open_sync_store("memory:") as store:
        stored(store, list(map(new_event, (UserMessage("my secret"), Compaction("The secret."), UserMessage("go on")))))
        assert story_of(store.load_run(AGENT, RUN).log).summary is not None
        store.redact_events(AGENT, RUN, [1])
        assert story_of(store.load_run(AGENT, RUN).log).summary is None
        store.append_events(AGENT, RUN, new_event(Compaction("Another.")))
        summary = story_of(store.load_run(AGENT, RUN).log).summary
        assert summary is not None
        assert summary.text == "Another."
