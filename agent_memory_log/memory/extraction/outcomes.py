"""Reads outcomes from the structure of a run's log: fixed failures, acknowledged work and the user's feedback.

``rules`` explains open calls. An outcome depends only on the events between two points at which no call is open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import cast

import msgspec

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.tables import read_table, with_parts

_MAX_SHOWN = 80
_MAX_ERROR = 160
_MAX_FIELDS = 5
_MAX_FEEDBACK = 2000
_LEAST_EQUAL = 0.5

_FAILED = re.compile(
    r"\s{0,20}\"?(?:[\w.]{0,80}(?:error|exception)(?:\s{1,8}\w{1,20})?:|traceback\s{1,8}\(most)", re.IGNORECASE
)
_NAME_PARTS = re.compile(r"[^\W_]+?(?=[A-Z][a-z]|[\W_]|$)")

_TABLE = read_table(__name__, "outcomes")
_READS = frozenset(_TABLE["reads"].split())
_THANKS = re.compile("|".join(_TABLE["thanks"]["patterns"]), re.IGNORECASE)
_THANKS_HINTS: list[str] = _TABLE["thanks"]["hints"]
_BUT = re.compile("|".join(_TABLE["thanks"]["taken_back"]), re.IGNORECASE)
_FEEDBACK = re.compile(with_parts("{sentence}", _TABLE["feedback"]), re.IGNORECASE)
_FEEDBACK_HINTS: list[str] = _TABLE["feedback"]["hints"]
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")


def failure_of(result: ToolResult) -> str:
    """Return why a call failed, cut to one line, or ``""`` if it did not fail.

    A result failed if it has an ``error_message`` or a ``retry_hint``. Transcripts have neither, so a result also
    failed if its text starts with an error or its field ``error`` is set.
    """
    if result.error_message:
        return one_line(result.error_message, _MAX_ERROR)
    if result.retry_hint is not None:
        hint = result.retry_hint
        return one_line(hint.message or hint.reason, _MAX_ERROR) or "failed"
    text = result.result_json
    if _FAILED.match(text):
        return one_line(text.strip().strip('"'), _MAX_ERROR)
    if text.startswith("{") and '"error"' in text:
        decoded = _map_of(result)
        error = decoded.get("error") if decoded is not None else None
        if error:
            return one_line(error if isinstance(error, str) else argument_text(error), _MAX_ERROR)
    return ""


def puts_right(failed: ToolCall, succeeded: ToolCall) -> bool:
    """Return whether a call repeats a failed call: same tool, and at least half of the arguments equal.

    If the failed arguments are empty or cannot be decoded, any call of the same tool repeats them.
    """
    if failed.tool_name != succeeded.tool_name:
        return False
    before, after = _map_of(failed), _map_of(succeeded)
    if before is None or not before:
        return True
    if after is None:
        return False
    names = before.keys() | after.keys()
    same = sum(name in before and name in after and _equal(before[name], after[name]) for name in names)
    return same >= _LEAST_EQUAL * len(names)


def describe_fix(failed: ToolCall, reason: str, succeeded: ToolCall) -> str:
    """Describe a failure and its fix: which arguments failed, and which succeeded."""
    changes = list(_differences(_map_of(failed) or {}, _map_of(succeeded) or {}, ""))
    how = ", ".join(changes[:_MAX_FIELDS]) or "when it was called again"
    return f'{failed.tool_name} failed ("{reason}"), and succeeded {how}'


def changes_something(call: ToolCall) -> bool:
    """Return whether a tool does more than read, judged by its name."""
    parts = {part.casefold() for part in _NAME_PARTS.findall(call.tool_name)}
    return bool(parts) and not parts & _READS


def describe_work(calls: list[ToolCall]) -> str:
    """Describe the calls that the user acknowledged."""
    return "Done, and acknowledged by the user: " + "; ".join(_describe_call(call) for call in calls)


def acknowledges(text: str) -> bool:
    """Return whether a user's message starts with thanks and without an objection."""
    first = _SENTENCE.search(text[:_MAX_FEEDBACK])
    sentence = first.group().replace("\u2019", "'") if first else ""
    lower = sentence.lower()
    if not any(hint in lower for hint in _THANKS_HINTS):
        return False
    return _THANKS.search(sentence) is not None and _BUT.search(sentence) is None


def read_feedback(text: str) -> tuple[str, ...]:
    """Return the sentences of a user's message that call the assistant's work right or wrong."""
    lower = text.lower()
    if not any(hint in lower for hint in _FEEDBACK_HINTS):
        return ()
    sentences = (match.group().strip() for match in _SENTENCE.finditer(text[:_MAX_FEEDBACK].replace("\u2019", "'")))
    return tuple(sentence for sentence in sentences if len(sentence) <= _MAX_ERROR and _FEEDBACK.match(sentence))


def one_line(text: str, most: int = _MAX_SHOWN) -> str:
    """Return the text on one line, cut to ``most`` characters."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"


def argument_text(value: object) -> str:
    """Return an argument as one line of text."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, Decimal):
        return str(value)
    return one_line(msgspec.json.encode(value, order="sorted").decode())


def _differences(before: object, after: object, name: str) -> Iterator[str]:
    """Yield a description of each path at which two arguments differ."""
    old, new = _children(before), _children(after)
    if old is None or new is None or not _is_alike(before, after):
        if not _equal(before, after):
            yield f"with {name} {argument_text(after)} in place of {argument_text(before)}"
        return
    for key in (*old, *(key for key in new if key not in old)):
        path = f"{name}{key}".removeprefix(".")
        if key not in new:
            yield f"without {path}"
        elif key not in old:
            yield f"with {path} {argument_text(new[key])}"
        else:
            yield from _differences(old[key], new[key], path)


def _is_alike(first: object, second: object) -> bool:
    """Return whether two containers have the same shape, so that their items can be compared."""
    if isinstance(first, list) and isinstance(second, list):
        return len(cast("list[object]", first)) == len(cast("list[object]", second))
    return isinstance(first, dict) and isinstance(second, dict)


def _children(value: object) -> Mapping[str, object] | None:
    """Return the items of a map or a list, keyed by the path suffix that reaches them."""
    if isinstance(value, dict):
        return {f".{key}": item for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return {f"[{index}]": item for index, item in enumerate(cast("list[object]", value))}
    return None


def _describe_call(call: ToolCall) -> str:
    fields = _map_of(call) or {}
    scalars = [
        f"{name}: {argument_text(value)}"
        for name, value in fields.items()
        if isinstance(value, (str, int, Decimal)) and value
    ]
    return f"{call.tool_name} ({', '.join(scalars[:_MAX_FIELDS])})" if scalars else call.tool_name


def _map_of(payload: ToolCall | ToolResult) -> Mapping[str, object] | None:
    try:
        decode = payload.input if isinstance(payload, ToolCall) else payload.result
        decoded = decode(exact_numbers=True)
    except DecodeError:
        return None
    if decoded is None:
        return {}
    return cast("Mapping[str, object]", decoded) if isinstance(decoded, dict) else None


def _equal(first: object, second: object) -> bool:
    return msgspec.json.encode(first, order="sorted") == msgspec.json.encode(second, order="sorted")
