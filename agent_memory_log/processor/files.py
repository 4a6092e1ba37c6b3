"""Reads from a tool call which files it touches, and how."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import cast

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.payloads import ToolCall
from agent_memory_log.tables import read_table

READ = "read"
"""The action of a call that changes nothing, as far as its name says."""

_MOST_FILES = 20
_LONGEST_PATH = 512
_LONGEST_PATCH = 200_000

_TABLE = read_table(__name__, "work")["files"]
_ARGUMENTS = frozenset(_TABLE["arguments"].split())
_ACTIONS: dict[str, str] = {word: action for action, words in _TABLE["actions"].items() for word in words.split()}
_PATCH = re.compile(_TABLE["patch"], re.MULTILINE)
_PATCHED = {"Add": "wrote", "Update": "edited", "Delete": "deleted"}
_NAME_PARTS = re.compile(r"[^\W_]+?(?=[A-Z][a-z]|[\W_]|$)")


def files_of(call: ToolCall) -> dict[str, str]:
    """Return the files that a call names, with what happens to each: ``wrote``, ``edited``, ``deleted``, ``moved``,
    ``copied`` or ``read``. A call names at most 20 files.

    A file is the value of an argument such as ``path`` or ``file_path``, or named by a line of a patch. What happens to
    it is the value of the argument ``command``, as editors of providers have it, or else a word in the tool's name.
    """
    try:
        arguments = call.input()
    except DecodeError:
        arguments = call.payload_json  # a tool without a schema takes plain text, such as a patch
    if isinstance(arguments, str):
        return _patched(arguments)
    if not isinstance(arguments, dict):
        return {}
    values = cast("Mapping[str, object]", arguments)
    files = {
        path: action
        for value in values.values()
        if isinstance(value, str) and "*** " in value
        for path, action in _patched(value).items()
    }
    action = _action(call.tool_name, values.get("command"))
    for name, value in values.items():
        if name.lower() in _ARGUMENTS:
            for path in _paths(value):
                files.setdefault(path, action)
    return dict(list(files.items())[:_MOST_FILES])


def _action(tool: str, command: object) -> str:
    words = [
        *(_words(command) if isinstance(command, str) and len(command) <= len("str_replace_all") else ()),
        *_words(tool),
    ]
    return next((_ACTIONS[word] for word in words if word in _ACTIONS), READ)


def _words(name: str) -> list[str]:
    return [part.casefold() for part in _NAME_PARTS.findall(name)]


def _paths(value: object) -> Iterator[str]:
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    for item in values[:_MOST_FILES]:
        path = cast("dict[str, object]", item).get("path") if isinstance(item, dict) else item
        if isinstance(path, str) and 0 < len(path) <= _LONGEST_PATH and "\n" not in path and "://" not in path:
            yield path


def _patched(text: str) -> dict[str, str]:
    return {match[2].strip(): _PATCHED[match[1]] for match in _PATCH.finditer(text[:_LONGEST_PATCH])}
