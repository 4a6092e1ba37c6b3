"""The commands of the memory tool. Each decides on the newest list of files, and again if that changes meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import PurePosixPath
from typing import NamedTuple

from anthropic.lib.tools import ToolError
from anthropic.types.beta import (
    BetaMemoryTool20250818Command,
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)
from msgspec.structs import replace

from agent_memory_log.errors import EventTooLarge, InvalidArgument, VersionConflict
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.integrations.anthropic_memory.files import (
    DIRECTORY,
    INTERVAL,
    OWN,
    ROOT,
    Entry,
    Files,
    MemoryChange,
    MemoryFile,
    canonical,
    files_of,
    is_in,
    read_files,
    tree_of,
)
from agent_memory_log.integrations.anthropic_memory.texts import MAX_LINES, content, listing, snippet
from agent_memory_log.integrations.names import joined_id
from agent_memory_log.store import SyncStore

MAX_FILES = 4_000
"""The number of files and directories that a user may have."""

MAX_BYTES = 8 * 2**20
"""The number of bytes of a file in UTF-8."""

_MOST_MATCHES = 1_000
"""The number of matches of a text whose lines Claude sees."""


class _Edit(NamedTuple):
    """The changes that a command makes. See ``MemoryChange``. ``file`` is a new version of a file."""

    entries: dict[str, Entry]
    removed: tuple[str, ...] = ()
    file: MemoryFile | None = None
    line: int = 0


class UserFiles:
    """The files of one user.

    Args:
        store: The store. Its owner closes it.
        user: The id of the user.

    Raises:
        InvalidArgument: ``user`` is not text or is empty.
    """

    def __init__(self, store: SyncStore, user: str) -> None:
        if not isinstance(user, str) or not user:
            raise InvalidArgument("user must be text that is not empty")
        self.store = store
        self.run = joined_id(user)
        self._meta: dict[str, JsonValue] = {OWN: {"user": user}}

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Return the content of a directory or a file."""
        path, typed_path = canonical(command.path), command.path
        files = read_files(self.store, self.run)
        entry = _entry(files, path)
        if entry is None:
            raise ToolError(f"The path {typed_path} does not exist. Please provide a valid path.")
        if entry == DIRECTORY:
            return listing(files.entries, path, typed_path)
        text = self._version(entry.seq, typed_path).text
        if text.count("\n") >= MAX_LINES:
            raise ToolError(f"File {typed_path} exceeds maximum line limit of {MAX_LINES:,} lines.")
        return content(text, typed_path, command.view_range)

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Create a file and the directories above it."""
        path = canonical(command.path)

        def decide(files: Files) -> _Edit:
            if _entry(files, path) is not None:
                raise ToolError(f"File {command.path} already exists")
            return _Edit(_directories_above(files, path), file=MemoryFile(path, command.file_text))

        self._change(command, decide)
        return f"File created successfully at: {command.path}"

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that occurs once in a file."""
        path, old = canonical(command.path), command.old_str

        def decide(files: Files) -> _Edit:
            file = self._file(files, path, command.path)
            matches = file.text.count(old)
            if not matches:
                raise ToolError(
                    f"No replacement was performed, old_str `{old}` did not appear verbatim in {command.path}."
                )
            lines = [*islice(_lines_of_matches(file.text, old), _MOST_MATCHES + 1)]
            if matches > 1:
                numbers = [*map(str, lines[:_MOST_MATCHES]), *["…"][: len(lines) - _MOST_MATCHES]]
                raise ToolError(
                    f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
                    f"{', '.join(numbers)}. Please ensure it is unique"
                )
            return _Edit({}, file=replace(file, text=file.text.replace(old, command.new_str)), line=lines[0])

        change = self._change(command, decide)
        return snippet(self._version(change.entries[path].seq, command.path).text, change.line)

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text after a line of a file."""
        path = canonical(command.path)

        def decide(files: Files) -> _Edit:
            file = self._file(files, path, command.path)
            lines = file.text.removesuffix("\n").split("\n") if file.text else []
            if not 0 <= command.insert_line <= len(lines):
                raise ToolError(
                    f"Invalid `insert_line` parameter: {command.insert_line}. "
                    f"It should be within the range [0, {len(lines)}]."
                )
            lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
            text = "\n".join(lines)
            return _Edit({}, file=replace(file, text=text if text.endswith("\n") else f"{text}\n"))

        self._change(command, decide)
        return f"The file {command.path} has been edited."

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Remove a file, or a directory with everything below it, from the list. The versions stay in the log."""
        path = canonical(command.path)
        if path == ROOT:
            raise ToolError(f"Cannot delete the {ROOT} directory itself")

        def decide(files: Files) -> _Edit:
            if _entry(files, path) is None:
                raise ToolError(f"The path {command.path} does not exist")
            return _Edit({}, removed=(path,))

        self._change(command, decide)
        return f"Successfully deleted {command.path}"

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Rename a file, or a directory with everything below it."""
        old, new = canonical(command.old_path), canonical(command.new_path)
        if old == ROOT:
            raise ToolError(f"Cannot rename the {ROOT} directory itself")

        def decide(files: Files) -> _Edit:
            if _entry(files, new) is not None:
                raise ToolError(f"The destination {command.new_path} already exists")
            if _entry(files, old) is None:
                raise ToolError(f"The path {command.old_path} does not exist")
            if is_in(new, old):
                raise ToolError(f"The destination {command.new_path} is inside {command.old_path}")
            moved = {
                canonical(new + path.removeprefix(old)): files.entries[path] for path in tree_of(files.entries, old)
            }
            return _Edit({**_directories_above(files, new), **moved}, removed=(old,))

        self._change(command, decide)
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    def clear(self) -> str:
        """Erase all files of the user and their history."""
        self.store.delete_run(OWN, self.run)
        return "All memory cleared"

    def forget(self, path: str) -> int:
        """Erase every version of the files that are or were at a path. See ``MemoryLogMemoryTool.forget``."""
        top = canonical(path)
        while True:
            snapshot = self.store.load_run(OWN, self.run)
            entries = {
                name: entry
                for name, entry in files_of(snapshot.log, snapshot.version).entries.items()
                if not is_in(name, top)
            }
            seqs = _seqs_to_erase([(event.seq, event.data) for event in snapshot.log], top, entries)
            if not seqs:
                return 0
            event = new_event(MemoryChange(entries=entries, complete=True))
            try:
                self.store.append_events(OWN, self.run, event, expected_version=snapshot.version)
            except VersionConflict:
                continue  # another command changed the files
            self.store.redact_events(OWN, self.run, seqs, reason="forgotten")
            return len(seqs)

    def _change(self, command: BetaMemoryTool20250818Command, decide: Callable[[Files], _Edit]) -> MemoryChange:
        """Append the change of a command, and return it.

        A command that fails because it is the newest change already is a repetition, and its change is returned.
        """
        digest = sha256(json.dumps(command.to_dict(), sort_keys=True).encode()).hexdigest()
        while True:
            files = read_files(self.store, self.run)
            try:
                edit = decide(files)
            except ToolError:
                if files.newest is not None and files.newest.command == digest:
                    return files.newest
                raise
            entries = dict(edit.entries)
            events: list[Event] = []
            if edit.file is not None:
                events.append(new_event(edit.file))
                entries[edit.file.path] = Entry(files.version + 1, _size(edit.file))
            change = MemoryChange(digest, edit.removed, entries, line=edit.line)
            entries = files.after(change)
            if len(entries) > max(MAX_FILES, len(files.entries)):
                raise ToolError(f"{ROOT} must have at most {MAX_FILES:,} files and directories")
            if not 0 < files.changes < INTERVAL:
                change = replace(change, entries=entries, complete=True)
            try:
                self.store.append_events(
                    OWN, self.run, *events, new_event(change), expected_version=files.version, meta=self._meta
                )
            except VersionConflict:
                continue  # another command changed the files
            except EventTooLarge as error:
                raise ToolError(f"The file is too large: {error}") from error
            return change

    def _file(self, files: Files, path: str, typed_path: str) -> MemoryFile:
        """Return the base of the next version of a file: its newest version, with ``first``."""
        entry = _entry(files, path)
        if entry is None:
            raise ToolError(f"The path {typed_path} does not exist. Please provide a valid path.")
        if entry == DIRECTORY:
            raise ToolError(f"The path {typed_path} is not a file.")
        version = self._version(entry.seq, typed_path)
        return replace(version, path=path, first=version.first or entry.seq)

    def _version(self, seq: int, typed_path: str) -> MemoryFile:
        events = self.store.load_run(OWN, self.run, after=seq - 1, limit=1).log
        if not events or events[0].seq != seq or not isinstance(events[0].data, MemoryFile):
            raise ToolError(f"The file {typed_path} no longer exists (may have been deleted or renamed concurrently).")
        return events[0].data


def _entry(files: Files, path: str) -> Entry | None:
    return DIRECTORY if path == ROOT else files.entries.get(path)


def _directories_above(files: Files, path: str) -> dict[str, Entry]:
    """Return the directories above a path that do not exist yet."""
    missing: dict[str, Entry] = {}
    for parent in PurePosixPath(path).parents:
        entry = _entry(files, str(parent))
        if entry == DIRECTORY:
            break
        if entry is not None:
            raise ToolError(f"The path {parent} is not a directory.")
        missing[str(parent)] = DIRECTORY
    return missing


def _lines_of_matches(text: str, part: str) -> Iterator[int]:
    """Yield the number of the line of each match of ``part``. Matches may overlap."""
    line, end = 1, 0
    position = text.find(part)
    while position >= 0:
        line += text.count("\n", end, position)
        end = position
        yield line
        position = text.find(part, position + 1)


def _size(file: MemoryFile) -> int:
    try:
        size = len(file.text.encode())
    except UnicodeEncodeError as error:
        raise ToolError(f"The text of {file.path} is not valid Unicode: {error.reason}") from error
    if size > MAX_BYTES:
        raise ToolError(f"The file {file.path} must have at most {MAX_BYTES // 2**20} MiB, got {size:,} bytes")
    return size


def _seqs_to_erase(log: list[tuple[int, object]], top: str, remaining: dict[str, Entry]) -> list[int]:
    """Return the seqs of the versions of the files that are or were in ``top``, and of the changes that name them.

    Files that remain elsewhere are left out.
    """
    firsts = {seq: data.first or seq for seq, data in log if isinstance(data, MemoryFile)}
    changes = {seq: data for seq, data in log if isinstance(data, MemoryChange)}
    paths = [(path, firsts.get(entry.seq)) for change in changes.values() for path, entry in change.entries.items()]
    paths += [(data.path, firsts[seq]) for seq, data in log if isinstance(data, MemoryFile)]
    erased = {first for path, first in paths if first is not None and is_in(path, top)}
    erased -= {firsts.get(entry.seq) for entry in remaining.values()}

    def names(change: MemoryChange) -> bool:
        return any(is_in(path, top) for path in (*change.removed, *change.entries)) or any(
            firsts.get(entry.seq) in erased for entry in change.entries.values()
        )

    return [seq for seq, first in firsts.items() if first in erased] + [
        seq for seq, change in changes.items() if names(change)
    ]
