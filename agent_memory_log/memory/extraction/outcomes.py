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

_MAX_SHOWN = 80
_MAX_ERROR = 160
_MAX_FIELDS = 5
_MAX_FEEDBACK = 2000
_LEAST_EQUAL = 0.5

_FAILED = re.compile(
    r"\s{0,20}\"?(?:[\w.]{0,80}(?:error|exception)(?:\s{1,8}\w{1,20})?:|traceback\s{1,8}\(most)", re.IGNORECASE
)
_NAME_PARTS = re.compile(r"[^\W_]+?(?=[A-Z][a-z]|[\W_]|$)")
_READS = frozenset({
    "browse", "calculate", "cat", "check", "compute", "count", "describe", "fetch", "find", "get", "glob", "grep",
    "head", "inspect", "list", "look", "lookup", "ls", "note", "plan", "query", "read", "search", "show", "tail",
    "think", "view",
})  # fmt: skip

_THANKS = re.compile(
    r"\b(?:thanks|thank\s+you|perfect|great|awesome|excellent|wonderful|brilliant|works|worked"
    r"|danke|perfekt|super|gracias|perfecto|merci|parfait)\b",
    re.IGNORECASE,
)
_THANKS_HINTS = ("thank", "perfe", "great", "awesome", "excellent", "wonderful", "brilliant", "work", "danke", "super",
                 "gracias", "merci", "parfait")  # fmt: skip
_BUT = re.compile(
    r"\b(?:not|no|but|however|wrong|trying|still|instead|nicht|nein|aber|falsch|pero|mal|mais|pas|non)\b|n't\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_FEEDBACK = re.compile(
    r"(?:(?:no|yes|sorry|hmm|oh|wow|actually|thanks|thank\s+you|great|perfect|i\s+think|i'm\s+afraid)[,!.]?\s+)*"
    r"(?:(?:that|this|it)(?:'s|\s+is|\s+was)\s+(?:just\s+|simply\s+|completely\s+|totally\s+)?"
    r"(?:wrong|incorrect|not\s+(?:right|correct|true|what\s+I\s+(?:asked|wanted|meant|said)\b.*)"
    r"|(?:exactly\s+)?what\s+I\s+(?:wanted|needed|was\s+looking\s+for)\b.*)"
    r"|(?:that|this|it)\s+(?:isn't|wasn't)\s+(?:right|correct|what\s+I\s+(?:asked|wanted|meant|said)\b.*)"
    r"|you\s+(?:misunderstood|misread|got\s+(?:that|it|this)\s+wrong)\b.*"
    r"|there\s+(?:must|might|may)\s+(?:be|have\s+been)\s+(?:a|some)\s+(?:misunderstanding|mix-up|mistake)"
    r"|(?:that|this|it)\s+(?:really\s+)?(?:helps|helped|works|worked)(?:\s+(?:a\s+lot|perfectly|great|well|now))?)"
    r"\s*[.!]*$",
    re.IGNORECASE,
)
# One of these is in every sentence that _FEEDBACK matches, as one of _THANKS_HINTS is where _THANKS matches: most
# messages need no closer look.
_FEEDBACK_HINTS = (
    "wrong",
    "right",
    "correct",
    "true",
    "what i",
    "misunder",
    "misread",
    "mix-up",
    "mistake",
    "help",
    "work",
)


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
