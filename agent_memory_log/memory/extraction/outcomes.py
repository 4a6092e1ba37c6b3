"""What happened in a run, by the structure of its log: failed calls and what put them right, work that the user
acknowledged, what the user thought of it.

Between two points where nothing is open, all of it depends on the events between them alone; see ``rules``.
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
    """Why a call failed, cut to a line; ``""`` where it did not.

    Beside ``error_message`` and ``retry_hint``, a result is a failure that says so in its first word, or in its field
    ``error``: transcripts have nothing else.
    """
    if result.error_message:
        return shown(result.error_message, _MAX_ERROR)
    if result.retry_hint is not None:
        hint = result.retry_hint
        return shown(hint.message or hint.reason, _MAX_ERROR) or "failed"
    text = result.result_json
    if _FAILED.match(text):
        return shown(text.strip().strip('"'), _MAX_ERROR)
    if text.startswith("{") and '"error"' in text:
        found = _map_of(result)
        error = found.get("error") if found is not None else None
        if error:
            return shown(error if isinstance(error, str) else argument_text(error), _MAX_ERROR)
    return ""


def puts_right(failed: ToolCall, succeeded: ToolCall) -> bool:
    """Whether a call is the same again, changed: of the same tool, with at least half of the arguments equal.

    Arguments that could not even be read are put right by any that can.
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
    """A failure and what put it right, in words: what the arguments were, and what they had to be."""
    changes = list(_differences(_map_of(failed) or {}, _map_of(succeeded) or {}, ""))
    how = ", ".join(changes[:_MAX_FIELDS]) or "when it was called again"
    return f'{failed.tool_name} failed ("{reason}"), and succeeded {how}'


def changes_something(call: ToolCall) -> bool:
    """Whether a tool does more than read, as far as its name says."""
    parts = {part.casefold() for part in _NAME_PARTS.findall(call.tool_name)}
    return bool(parts) and not parts & _READS


def describe_work(calls: list[ToolCall]) -> str:
    """Work that was done, in words."""
    return "Done, and acknowledged by the user: " + "; ".join(_describe_call(call) for call in calls)


def acknowledges(text: str) -> bool:
    """Whether a user's message begins with thanks, and without an objection."""
    first = _SENTENCE.search(text[:_MAX_FEEDBACK])
    sentence = first.group().replace("\u2019", "'") if first else ""
    lower = sentence.lower()
    if not any(hint in lower for hint in _THANKS_HINTS):
        return False
    return _THANKS.search(sentence) is not None and _BUT.search(sentence) is None


def read_feedback(text: str) -> tuple[str, ...]:
    """The sentences of a user's message that say whether what was done is right."""
    lower = text.lower()
    if not any(hint in lower for hint in _FEEDBACK_HINTS):
        return ()
    sentences = (match.group().strip() for match in _SENTENCE.finditer(text[:_MAX_FEEDBACK].replace("\u2019", "'")))
    return tuple(one for one in sentences if len(one) <= _MAX_ERROR and _FEEDBACK.match(one))


def shown(text: str, most: int = _MAX_SHOWN) -> str:
    """Text on one line, cut to ``most`` characters."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"


def argument_text(value: object) -> str:
    """An argument in a line of text."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, Decimal):
        return str(value)
    return shown(msgspec.json.encode(value, order="sorted").decode())


def _differences(before: object, after: object, name: str) -> Iterator[str]:
    """What has to be known of two arguments to see why one failed: the places that differ."""
    old, new = _children(before), _children(after)
    if old is None or new is None or not _is_alike(before, after):
        if not _equal(before, after):
            yield f"with {name} {argument_text(after)} in place of {argument_text(before)}"
        return
    for key in (*old, *(key for key in new if key not in old)):
        place = f"{name}{key}".removeprefix(".")
        if key not in new:
            yield f"without {place}"
        elif key not in old:
            yield f"with {place} {argument_text(new[key])}"
        else:
            yield from _differences(old[key], new[key], place)


def _is_alike(one: object, other: object) -> bool:
    """Whether two values that hold others can be compared place by place."""
    if isinstance(one, list) and isinstance(other, list):
        return len(cast("list[object]", one)) == len(cast("list[object]", other))
    return isinstance(one, dict) and isinstance(other, dict)


def _children(value: object) -> Mapping[str, object] | None:
    """What a map or a list holds, by what has to be written behind its name to reach it."""
    if isinstance(value, dict):
        return {f".{key}": item for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return {f"[{place}]": item for place, item in enumerate(cast("list[object]", value))}
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
        decoded = payload.input() if isinstance(payload, ToolCall) else payload.result()
    except DecodeError:
        return None
    if decoded is None:
        return {}
    return cast("Mapping[str, object]", decoded) if isinstance(decoded, dict) else None


def _equal(one: object, other: object) -> bool:
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
