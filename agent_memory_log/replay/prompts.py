"""Whether the messages an agent is about to send are those of the recording, in any form that says the same.

Two freedoms are taken: results of parallel calls may stand in any order, as a log has them in the order they came in;
and text alone may stand in place of a list with one block of it, as the providers' types have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar, cast

from agent_memory_log.errors import DecodeError
from agent_memory_log.fields import describe
from agent_memory_log.jsonvalue import JsonValue, NotJson, own_json
from agent_memory_log.replay.differences import Difference, differences

JsonMap = Mapping[str, JsonValue]

_Item = TypeVar("_Item")

_TEXT_BLOCKS = {"anthropic": "text", "openai-chat": "text", "openai-responses": "input_text"}


def prompt_differences(
    recorded: Sequence[JsonMap], given: Iterable[object], provider: str
) -> tuple[int, list[Difference]] | None:
    """The index of the first message that differs, and where it does; None if there is none.

    Raises ``DecodeError`` for what are no messages, naming the place.
    """
    ours = _in_one_form(recorded, provider)
    theirs = _in_one_form(_owned(given), provider)
    for index in range(max(len(ours), len(theirs))):
        if index >= len(theirs):
            return index, [Difference("", left=ours[index], only="left")]
        if index >= len(ours):
            return index, [Difference("", right=theirs[index], only="right")]
        found = differences(ours[index], theirs[index])
        if found:
            return index, found
    return None


def _owned(given: Iterable[object]) -> list[JsonMap]:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise DecodeError(f"messages must be a list of maps, found {describe(cast('object', given))}")
    owned: list[JsonMap] = []
    for index, message in enumerate(given):
        if not isinstance(message, Mapping):
            raise DecodeError(f"messages[{index}] must be a map, found {describe(message)}")
        try:
            owned.append(cast("JsonMap", own_json(cast("object", message))))
        except NotJson as error:
            raise DecodeError(f"messages[{index}]{error.path} {error}") from error
    return owned


def _in_one_form(messages: Sequence[JsonMap], provider: str) -> list[JsonMap]:
    formed: list[JsonMap] = []
    for message in messages:
        content = message.get("content")
        kind = _TEXT_BLOCKS.get(provider)
        if isinstance(content, str) and kind is not None and message.get("role") == "user":
            formed.append({**message, "content": [{"type": kind, "text": content}]})
        elif isinstance(content, list):
            formed.append({**message, "content": _with_sorted(content, _answered_block)})
        else:
            formed.append(message)
    return _with_sorted(formed, _answered_message)


def _with_sorted(items: Sequence[_Item], answered: Callable[[object], str | None]) -> list[_Item]:
    """``items`` with results that stand side by side in the order of the ids they answer."""
    ordered: list[_Item] = []
    for _, group in groupby(items, key=lambda item: answered(item) is not None):
        ordered += sorted(group, key=lambda item: answered(item) or "")  # what is no result stays as it is
    return ordered


def _answered_block(block: object) -> str | None:
    """The id of the call that a block of a message is the result of, None where it is none."""
    if not isinstance(block, Mapping):
        return None
    found = cast("JsonMap", block)
    inside = found.get("toolResult")
    answered = inside.get("toolUseId") if isinstance(inside, Mapping) else found.get("tool_use_id")
    return answered if isinstance(answered, str) else None


def _answered_message(message: object) -> str | None:
    """As ``_answered_block``, of a message that is a result itself."""
    found = cast("JsonMap", message)
    kind = found.get("type")
    if isinstance(kind, str) and kind.endswith("_output"):
        answered = found.get("call_id")
    else:
        answered = found.get("tool_call_id") if found.get("role") == "tool" else None
    return answered if isinstance(answered, str) else None
