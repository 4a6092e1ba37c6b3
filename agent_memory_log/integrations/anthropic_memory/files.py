"""The events that hold the files of a user, and the list of files that they give.

A version of a file is an event. Each append ends with a ``MemoryChange``, which says how the list of files changes. At
least every 16th has the complete list, so reading the list costs at most 16 small events and not the history.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from anthropic.lib.tools import ToolError

from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import EventData
from agent_memory_log.events.registry import register_payload
from agent_memory_log.store import SyncStore

OWN = "anthropic-memory"
"""The agent of all runs, and the key of a run's meta."""

ROOT = "/memories"

INTERVAL = 16
"""At least one of so many changes in a row has the complete list."""

_MAX_PATH = 512
"""The number of characters of a path."""

_MAX_NAME = 255
"""The number of bytes of a name in UTF-8, as in common file systems."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A file or a directory.

    Attributes:
        seq: The seq of the newest version of the file, or 0 for a directory.
        size: The size of the file in bytes, or 0.
    """

    seq: int = 0
    size: int = 0


DIRECTORY = Entry()


@register_payload
class MemoryFile(EventData, frozen=True):
    """A version of a file.

    Attributes:
        path: The path of the file at that time.
        text: The complete text.
        first: The seq of the first version of the file, or 0 in that version. It stays if the file is renamed.
    """

    event_type = f"{OWN}.file"

    path: str
    text: str
    first: int = 0


@register_payload
class MemoryChange(EventData, frozen=True):
    """The end of each append: a change of the list of files.

    Attributes:
        command: A digest of the command, by which its repetition is recognized, or ``""``.
        removed: The paths that the change removes first, with everything below them.
        entries: The files and directories that the change adds or replaces, by their paths.
        complete: Whether ``entries`` is the complete list.
        line: The number of the line that the command replaced, or 0.
    """

    event_type = f"{OWN}.change"

    command: str = ""
    removed: tuple[str, ...] = ()
    entries: dict[str, Entry] = msgspec.field(default_factory=dict[str, Entry])
    complete: bool = False
    line: int = 0


class Files(NamedTuple):
    """The list of a user's files, as one read returned it.

    Attributes:
        entries: The files and directories by their paths.
        version: The version of the run.
        newest: The newest change, or None.
        changes: The number of changes since a complete list, with that one. Without such a list, it is 0.
    """

    entries: dict[str, Entry]
    version: int
    newest: MemoryChange | None
    changes: int

    def after(self, change: MemoryChange) -> dict[str, Entry]:
        """Return the entries after a change."""
        entries = {} if change.complete else dict(self.entries)
        _apply(entries, change)
        return entries


def read_files(store: SyncStore, run: str) -> Files:
    """Read the list of files from the newest changes of a run."""
    last = INTERVAL
    while True:
        snapshot = store.load_run(OWN, run, types=(MemoryChange.event_type,), last=last)
        files = files_of(snapshot.log, snapshot.version)
        if files.changes or len(snapshot.log) < last:
            return files
        last *= 2  # changes with complete lists were redacted


def files_of(log: Iterable[Event], version: int) -> Files:
    """Return the list of files that the changes in a part of a log give."""
    entries: dict[str, Entry] = {}
    newest: MemoryChange | None = None
    changes = 0
    for event in log:
        if isinstance(event.data, MemoryChange):
            newest = event.data
            if newest.complete:
                entries.clear()
                changes = 0
            changes += newest.complete or changes > 0
            _apply(entries, newest)
    return Files(entries, version, newest, changes)


def _apply(entries: dict[str, Entry], change: MemoryChange) -> None:
    for path in change.removed:
        for name in tree_of(entries, path):
            del entries[name]
    entries.update(change.entries)


def is_in(path: str, top: str) -> bool:
    """Return whether a path is ``top`` or below it."""
    return path == top or path.startswith(f"{top}/")


def tree_of(entries: Mapping[str, Entry], top: str) -> list[str]:
    """Return the paths that are ``top`` or below it."""
    return [path for path in entries if is_in(path, top)]


def canonical(path: str) -> str:
    """Return the path that all spellings of a path have: composed characters, without ``.``, ``..`` and empty names.

    Raises:
        ToolError: The path is not ``/memories`` or below it, leaves it on the way, is too long, or has a character that
            cannot be printed. Two names that look the same are the same file or one of them is refused.
    """
    if len(path) > _MAX_PATH:
        raise ToolError(f"A path must have at most {_MAX_PATH} characters, got {len(path):,}")
    if not path.isprintable():
        raise ToolError(f"Path {path!a} has a character that cannot be printed")
    if not is_in(path, ROOT):
        raise ToolError(f"Path must start with {ROOT}, got: {path}")
    names: list[str] = []
    for name in unicodedata.normalize("NFC", path).split("/")[2:]:
        if name == ".." and not names:
            raise ToolError(f"Path {path} would escape {ROOT} directory")
        if len(name.encode()) > _MAX_NAME:
            raise ToolError(f"Path {path} has a name of more than {_MAX_NAME} bytes")
        if name == "..":
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    return "/".join([ROOT, *names])
