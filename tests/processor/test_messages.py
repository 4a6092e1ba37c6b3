"""Messages have the fields of their contract, and are checked in both directions."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.processor import Triple
from agent_memory_log.processor.transport import (
    CheckpointEventMessage,
    ContextEvent,
    GraphMutationMessage,
    HydrateRequest,
    InjectedContextMessage,
)
from agent_memory_log.processor.transport.messages import check_token, read_message, write_message

EVENT = {"type": "compaction_starting", "loop_id": "l", "iteration": 3}
REQUEST = {"type": "pre_task", "loop_id": "l"}


def test_event_is_read_with_its_optional_fields() -> None:
    event = read_message(
        json.dumps(
            {**EVENT, "utilization": 0.85, "tokens_saved": 100, "summary": "s", "user_id": "u", "newer": [1]}
        ).encode(),
        ContextEvent,
    )
    assert event == ContextEvent("compaction_starting", "l", 3, 0.85, 100, "s", "u")
    nulls = read_message(json.dumps({**EVENT, "utilization": None, "summary": None}).encode(), ContextEvent)
    assert nulls == ContextEvent("compaction_starting", "l", 3)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"type": "other"}, "type"),
        ({"loop_id": 1}, "loop_id"),
        ({"iteration": "3"}, "iteration"),
        ({"iteration": -1}, "iteration"),
        ({"iteration": 2**64}, "iteration"),
        ({"iteration": 1.5}, "iteration"),
        ({"utilization": "x"}, "utilization"),
        ({"summary": 1}, "summary"),
        ({"user_id": 1}, "user_id"),
        ({"user_id": "u" * 513}, "user_id"),
    ],
)
def test_wrong_fields_of_an_event_are_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(DecodeError, match=rf"ContextEvent.*\$\.{field}"):
        read_message(json.dumps({**EVENT, **change}).encode(), ContextEvent)


@pytest.mark.parametrize("field", ["type", "loop_id", "iteration"])
def test_missing_fields_are_named(field: str) -> None:
    left = {key: value for key, value in EVENT.items() if key != field}
    with pytest.raises(DecodeError, match=field):
        read_message(json.dumps(left).encode(), ContextEvent)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'"x"', b'{"type":"pre_task","loop_id":"\\ud800"}', b"[" * 100_000]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="HydrateRequest"):
        read_message(data, HydrateRequest)


@pytest.mark.parametrize(
    "loop_id", ["", "a.b", "a b", "*", "a>", "a\n", "a\x00", "a\t", "\u200b", "\u00a0", "x" * 257, "a\u2028"]
)
def test_loop_id_must_be_one_token(loop_id: str) -> None:
    with pytest.raises(DecodeError, match="loop_id must be one token"):
        read_message(json.dumps({**REQUEST, "loop_id": loop_id}).encode(), HydrateRequest)


@given(st.text(max_size=300))
def test_token_has_no_character_that_changes_a_subject(loop_id: str) -> None:
    try:
        check_token(loop_id)
    except DecodeError:
        return
    subject = f"agent.context.injected.{loop_id}"
    assert subject.count(".") == 3
    assert not set(subject) & set(" \t\r\n*>\0")
    subject.encode()


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused_with_a_named_error(data: bytes) -> None:
    for message_type in (ContextEvent, HydrateRequest):
        with contextlib.suppress(DecodeError):
            assert isinstance(read_message(data, message_type), message_type)


def test_messages_that_leave_have_the_fields_of_the_contract() -> None:
    context = InjectedContextMessage("l", "text", 2, "pre_task", 1_700_000_000)
    assert json.loads(write_message(context)) == {
        "loop_id": "l",
        "context": "text",
        "token_count": 2,
        "source": "pre_task",
        "timestamp": 1_700_000_000,
    }
    checkpoint = CheckpointEventMessage("l", "c", "b", 1)
    assert json.loads(write_message(checkpoint)) == {
        "loop_id": "l",
        "checkpoint_id": "c",
        "bucket": "b",
        "timestamp": 1,
    }
    triple = Triple("s", "agent.preference.language", "o", "run:a/b", datetime(2026, 1, 2, tzinfo=UTC), 0.5, "m1")
    mutation = GraphMutationMessage("add_triples", "l", (triple,), 1)
    assert json.loads(write_message(mutation)) == {
        "operation": "add_triples",
        "loop_id": "l",
        "triples": [
            {
                "subject": "s",
                "predicate": "agent.preference.language",
                "object": "o",
                "source": "run:a/b",
                "timestamp": "2026-01-02T00:00:00Z",
                "confidence": 0.5,
                "context": "m1",
            }
        ],
        "timestamp": 1,
    }


@pytest.mark.parametrize(
    "message",
    [
        InjectedContextMessage("l", "text", -1, "pre_task", 1),
        InjectedContextMessage("l", "text", 1, "other", 1),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # it is wrong on purpose
        InjectedContextMessage("l", "\ud800", 1, "pre_task", 1),
        GraphMutationMessage("add_triples", "l", (), 1),
        CheckpointEventMessage("l", 1, "b", 1),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # as above
    ],
)
def test_wrong_messages_do_not_leave(message: Any) -> None:
    with pytest.raises(InvalidArgument, match="cannot be sent"):
        write_message(message)
