"""Makes the body of a provider's HTTP answer from a recorded model turn.

The log keeps the messages, the id, the model, the stop reason and the usage of an answer. The other fields that the
SDKs need get neutral values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_memory_log.events.context_payloads import Compaction
from agent_memory_log.events.jsonvalue import JsonValue, decode_json
from agent_memory_log.recording.responses import COMPACTED
from agent_memory_log.replay.expectations import ModelTurn
from agent_memory_log.transcript.anthropic.rendering import PROVIDER as ANTHROPIC
from agent_memory_log.transcript.openai_chat.rendering import PROVIDER as CHAT
from agent_memory_log.transcript.openai_responses.rendering import PROVIDER as RESPONSES

Map = dict[str, Any]

_STATUSES = frozenset({"cancelled", "completed", "failed", "in_progress", "incomplete", "queued"})
_INCOMPLETE = frozenset({"content_filter", "max_output_tokens"})
"""The stop reasons of OpenAI Responses that are in ``incomplete_details`` and not in ``status``."""


def answer_body(turn: ModelTurn, provider: str, model: str) -> Map:
    """Return the body that the provider sends for a turn without streaming.

    ``model`` is the model of the agent's request. It is used if the recording does not name the model.
    """
    return _BODIES[provider](turn, turn.events[0].labels.get("model", model))


def _anthropic(turn: ModelTurn, model: str) -> Map:
    content: list[Any] = []
    for message in turn.messages:
        text = message["content"]
        content += [{"type": "text", "text": text}] if isinstance(text, str) else text
    return {
        "id": turn.answer_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": _stop_reason(turn, "tool_use", "end_turn"),
        "stop_sequence": None,
        "usage": _usage(turn) or {"input_tokens": 0, "output_tokens": 0},
    }


def _chat(turn: ModelTurn, model: str) -> Map:
    message: Map = turn.message if turn.messages else {"role": "assistant", "content": None}
    stop_reason = _stop_reason(turn, "tool_calls", "stop")
    return {
        "id": turn.answer_id,
        "object": "chat.completion",
        "created": _seconds(turn),
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": stop_reason}],
        "usage": _usage(turn),
    }


def _responses(turn: ModelTurn, model: str) -> Map:
    if isinstance(turn.events[0].data, Compaction):
        return _compacted(turn)
    reason = _stop_reason(turn, "completed", "completed")
    is_error = reason is not None and reason not in _STATUSES | _INCOMPLETE
    status = reason if reason in _STATUSES else "failed" if is_error else "incomplete"
    return {
        "id": turn.answer_id,
        "object": "response",
        "created_at": _seconds(turn),
        "status": status,
        "error": {"code": reason, "message": reason} if is_error else None,
        "incomplete_details": {"reason": reason} if reason in _INCOMPLETE else None,
        "model": model,
        "output": [_output_item(item, f"{turn.answer_id}-{index}") for index, item in enumerate(turn.messages)],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(turn),
    }


def _compacted(turn: ModelTurn) -> Map:
    counts = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": turn.answer_id,
        "object": COMPACTED,
        "created_at": _seconds(turn),
        "output": list(turn.messages),
        "usage": _usage(turn) or {**counts, **details},
    }


def _output_item(item: Map, item_id: str) -> Map:
    """Return an item as the API sends it. Agents may write the model's messages in a shorter form."""
    if "type" in item or "role" not in item:
        return item
    text = item["content"]
    content: list[Any] = [{"type": "output_text", "text": text, "annotations": []}] if isinstance(text, str) else text
    return {"type": "message", "id": item_id, "status": "completed", **item, "content": content}


_BODIES: dict[str, Callable[[ModelTurn, str], Map]] = {ANTHROPIC: _anthropic, CHAT: _chat, RESPONSES: _responses}


def _stop_reason(turn: ModelTurn, with_calls: str, otherwise: str) -> str | None:
    """Return the recorded stop reason, or else the usual one. A partial answer has none."""
    usual = None if turn.partial else with_calls if turn.tool_calls else otherwise
    return turn.events[0].labels.get("stop_reason", usual)


def _seconds(turn: ModelTurn) -> int:
    return int(turn.events[0].timestamp.timestamp())


def _usage(turn: ModelTurn) -> JsonValue:
    usage = turn.events[0].labels.get("usage")
    return None if usage is None else decode_json(usage)
