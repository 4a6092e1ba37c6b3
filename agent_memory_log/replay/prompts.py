"""Whether the messages an agent is about to send are those of the recording, in any form that says the same.

Two freedoms are taken: results of parallel calls may stand in any order, as a log has them in the order they came in;
and text alone may stand in place of a list with one block of it, as the providers' types have it.
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

JsonMap = Mapping[str, JsonValue]

_Item = TypeVar("_Item")

_TEXT_BLOCKS = {"anthropic": "text", "openai-chat": "text", "openai-responses": "input_text"}


class PromptCheck:
    """Compares what an agent is about to send with the messages of a recording, turn after turn.

    Agents send the whole conversation each time. What was found to be as recorded is compared as a whole the next time,
    and looked at one by one only if it is no longer the same.
    """

    def __init__(self, recorded: Sequence[JsonMap], provider: str) -> None:
        """``recorded``: all messages of the recording, in the form of ``provider``."""
        self._recorded = recorded
        self._provider = provider
        self._sent: list[JsonMap] = []
        """What the agent sent so far as recorded, as copies of our own."""
        self._written = b""
        """The same as JSON: Python takes 1, 1.0 and true for equal."""

    def compare(
        self, messages: Iterable[object], count: int, joined: JsonMap | None
    ) -> tuple[int, list[Difference]] | None:
        """The index of the first of ``messages`` that differs, and where it does; None if there is none.

        ``count``: how many messages of the recording are expected; ``joined``: one more behind them. Raises
        ``DecodeError`` for what are no messages, naming the place.
        """
        sent = _listed(messages)
        known = len(self._sent) if self._is_known(sent, count) else 0
        recorded = self._recorded[known:count]
        new = _owned(sent, known)
        found = _first_difference(
            _in_one_form(recorded if joined is None else [*recorded, joined], self._provider),
            _in_one_form(new, self._provider),
        )
        if found is not None:
            return known + found[0], found[1]
        self._remember([*self._sent[:known], *new[: count - known]])
        return None

    def _is_known(self, sent: list[object], count: int) -> bool:
        known = len(self._sent)
        if not 0 < known <= min(count, len(sent)):
            return False
        try:
            written = encode_json(sent[:known])
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return False  # what is no JSON is refused with its place when it is looked at
        # A date is written as a text is, and is not equal to one.
        return written == self._written and sent[:known] == self._sent

    def _remember(self, sent: list[JsonMap]) -> None:
        # Results at the end may get another place among those that come next.
        while sent and _answered_message(sent[-1]) is not None:
            sent.pop()
        self._sent = sent
        self._written = encode_json(sent)


def _first_difference(recorded: Sequence[JsonMap], sent: Sequence[JsonMap]) -> tuple[int, list[Difference]] | None:
    for index, (one, two) in enumerate(zip_longest(recorded, sent)):
        if two is None:
            return index, [Difference("", left=one, only="left")]
        if one is None:
            return index, [Difference("", right=two, only="right")]
        found = differences(one, two)
        if found:
            return index, found
    return None


def _listed(messages: Iterable[object]) -> list[object]:
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise DecodeError(f"messages must be a list of maps, found {describe(cast('object', messages))}")
    return list(messages)


def _owned(messages: list[object], start: int) -> list[JsonMap]:
    owned: list[JsonMap] = []
    for index, message in enumerate(islice(messages, start, None), start):
        if not isinstance(message, Mapping):
            raise DecodeError(f"messages[{index}] must be a map, found {describe(message)}")
        try:
            owned.append(cast("JsonMap", own_value(cast("object", message))))
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
