"""Compares the messages that an agent wants to send with the recorded messages.

Three differences are allowed. The results of parallel calls may be in any order, because a log has them in order of
arrival. Content may be plain text or a list with one text block, because the providers accept both. Agents may leave
out fields of the model's answers that the providers need not get back, such as ``annotations``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, islice, zip_longest
from typing import TypeVar, cast

import msgspec

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, encode_json
from agent_memory_log.replay.differences import Difference, differences, own_value
from agent_memory_log.transcript.gemini.rendering import result_in
from agent_memory_log.transcript.openai_responses.items import is_from_model
from agent_memory_log.transcript.openai_responses.rendering import PROVIDER as RESPONSES
from agent_memory_log.transcript.vendors.profiles import VENDORS

JsonMap = Mapping[str, JsonValue]

_Item = TypeVar("_Item")

_TEXT_BLOCKS = {"anthropic": "text", "openai-chat": "text", "openai-responses": "input_text"} | dict.fromkeys(
    VENDORS, "text"
)

_OPTIONAL = frozenset({"annotations", "caller", "citations", "logprobs", "status"})
"""Fields of a model's answer that many agents leave out when they send it back, and that providers do not need."""


class PromptCheck:
    """Compares an agent's messages with the messages of a recording, turn after turn.

    Agents send the whole conversation each time. The check remembers the messages that matched. If they are unchanged,
    it compares only the new messages.
    """

    def __init__(self, recorded: Sequence[JsonMap], provider: str) -> None:
        """Create the check; ``recorded`` are all messages of the recording in the form of ``provider``."""
        self._recorded = recorded
        self._provider = provider
        self._sent: list[JsonMap] = []
        """Copies of the messages that matched so far."""
        self._encoded = b""
        """The same messages as JSON. In Python, 1, 1.0 and True are equal; their JSON texts differ."""

    def compare(
        self, sent: Sequence[object], count: int, joined: JsonMap | None
    ) -> tuple[int, list[Difference]] | None:
        """Return the index and the differences of the first message that differs, or None.

        ``count`` is the number of recorded messages to expect. ``joined`` is one more expected message after them.
        Raises ``DecodeError`` with the path of a value that is not a message.
        """
        checked = len(self._sent) if self._is_unchanged(sent, count) else 0
        recorded = self._recorded[checked:count]
        new = _owned(sent, checked)
        mismatch = _first_difference(
            _in_one_form(recorded if joined is None else [*recorded, joined], self._provider),
            _in_one_form(new, self._provider),
        )
        if mismatch is not None:
            return checked + mismatch[0], mismatch[1]
        self._remember([*self._sent[:checked], *new[: count - checked]])
        return None

    def _is_unchanged(self, sent: Sequence[object], count: int) -> bool:
        """Return whether ``sent`` begins with the messages that matched before."""
        checked = len(self._sent)
        if not 0 < checked <= min(count, len(sent)):
            return False
        try:
            encoded = encode_json(sent[:checked])
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return False  # the full comparison then raises an error with the path of the value that is not JSON
        # Both comparisons are needed: a date and its text have the same JSON.
        return encoded == self._encoded and sent[:checked] == self._sent

    def _remember(self, sent: list[JsonMap]) -> None:
        # Results at the end are not remembered: sorting can move them when more results follow.
        while sent and _answered_message(sent[-1]) is not None:
            sent.pop()
        self._sent = sent
        self._encoded = encode_json(sent)


def _first_difference(recorded: Sequence[JsonMap], sent: Sequence[JsonMap]) -> tuple[int, list[Difference]] | None:
    for index, (expected, actual) in enumerate(zip_longest(recorded, sent)):
        if actual is None:
            return index, [Difference("", left=expected, only="left")]
        if expected is None:
            return index, [Difference("", right=actual, only="right")]
        message_differences = differences(expected, actual)
        if message_differences:
            return index, message_differences
    return None


def listed(messages: Iterable[object]) -> list[object]:
    """Return the agent's messages as a list. Raises ``DecodeError`` if they are not a list of values."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise DecodeError(f"messages must be a list of maps, got {describe(cast('object', messages))}")
    return list(messages)


def _owned(messages: Sequence[object], start: int) -> list[JsonMap]:
    owned: list[JsonMap] = []
    for index, message in enumerate(islice(messages, start, None), start):
        if not isinstance(message, Mapping):
            raise DecodeError(f"messages[{index}] must be a map, got {describe(message)}")
        try:
            owned.append(cast("JsonMap", own_value(cast("object", message))))
        except NotJson as error:
            raise DecodeError(f"messages[{index}]{error.path} {error}") from error
    return owned


def _in_one_form(messages: Sequence[JsonMap], provider: str) -> list[JsonMap]:
    formed: list[JsonMap] = []
    for message in messages:
        role = message.get("role")
        form: dict[str, JsonValue] = dict(message)
        if role == "assistant" or (provider == RESPONSES and is_from_model(form)):
            form = cast("dict[str, JsonValue]", _without_optional(form))
            if provider == RESPONSES:
                form.pop("id", None)
        content = form.get("content")
        kind = "output_text" if provider == RESPONSES and role == "assistant" else _TEXT_BLOCKS.get(provider)
        if isinstance(content, str) and kind is not None and role in ("assistant", "user"):
            form["content"] = [{"type": kind, "text": content}]
        elif isinstance(content, list):
            form["content"] = _with_sorted(content, _answered_block)
        elif isinstance(parts := form.get("parts"), list):
            form["parts"] = _with_sorted(parts, _answered_block)
        if provider == RESPONSES and role == "assistant":
            form["type"] = "message"
        formed.append(form)
    return _with_sorted(formed, _answered_message)


def _without_optional(value: JsonValue) -> JsonValue:
    """Return a part of the model's answer without the fields that the provider need not get back.

    Bedrock needs no ``type`` in a ``toolUse``.
    """
    if isinstance(value, Mapping):
        return {
            key: item if key == "input" else _without_optional(item)  # the input of a call is the tool's own
            for key, item in value.items()
            if key not in _OPTIONAL and item not in (None, [], "") and (key != "type" or "toolUseId" not in value)
        }
    return [_without_optional(item) for item in value] if isinstance(value, list) else value


def _with_sorted(items: Sequence[_Item], answered: Callable[[object], str | None]) -> list[_Item]:
    """Return ``items`` with each group of neighbouring results sorted by call id."""
    ordered: list[_Item] = []
    for _, group in groupby(items, key=lambda item: answered(item) is not None):
        ordered += sorted(group, key=lambda item: answered(item) or "")  # a stable sort: other items do not move
    return ordered


def _answered_block(block: object) -> str | None:
    """Return the id of the call that a message block answers, or None if the block is not a result.

    A result of Gemini may have no id. It has the name of its tool.
    """
    if not isinstance(block, Mapping):
        return None
    fields = cast("JsonMap", block)
    response = result_in(fields)
    if response is not None:
        answered = response.get("id") or response.get("name")
        return answered if isinstance(answered, str) else None
    inside = fields.get("toolResult")
    answered = inside.get("toolUseId") if isinstance(inside, Mapping) else fields.get("tool_use_id")
    return answered if isinstance(answered, str) else None


def _answered_message(message: object) -> str | None:
    """Return the id of the call that a whole message answers, or None if the message is not a result."""
    fields = cast("JsonMap", message)
    kind = fields.get("type")
    if isinstance(kind, str) and kind.endswith("_output"):
        answered = fields.get("call_id")
    else:
        answered = fields.get("tool_call_id") if fields.get("role") == "tool" else None
    return answered if isinstance(answered, str) else None
