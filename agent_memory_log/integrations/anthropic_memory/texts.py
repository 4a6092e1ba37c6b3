"""The texts that Claude reads. They equal those of the SDK's own tool for files, on which Claude was trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agent_memory_log.integrations.anthropic_memory.files import DIRECTORY, Entry, is_in

MAX_LINES = 999_999

_DEPTH = 2
_CONTEXT = 2
"""The number of lines before and after a changed line that Claude sees."""

_WIDTH = len(str(MAX_LINES))
_DIRECTORY_SIZE = 4096
"""The size that ext4 reports for a directory."""


def listing(entries: Mapping[str, Entry], top: str, typed_path: str) -> str:
    """Return the files and directories up to two levels below ``top``, without hidden ones.

    Args:
        entries: All files and directories of the user.
        top: The path of the directory.
        typed_path: The path as Claude wrote it.
    """
    lines = [
        f"Here're the files and directories up to {_DEPTH} levels deep in {typed_path}, excluding hidden items:",
        f"{_size(DIRECTORY)}\t{typed_path}",
    ]
    below = sorted(path[len(top) + 1 :].split("/") for path in entries if path != top and is_in(path, top))
    for names in below:
        if len(names) <= _DEPTH and not any(name.startswith(".") for name in names):
            entry = entries["/".join([top, *names])]
            end = "/" if entry == DIRECTORY else ""
            lines.append(f"{_size(entry)}\t{typed_path}/{'/'.join(names)}{end}")
    return "\n".join(lines)


def _size(entry: Entry) -> str:
    size = float(_DIRECTORY_SIZE if entry == DIRECTORY else entry.size)
    unit = 0
    while size >= 1024:  # noqa: PLR2004  # bytes of a unit
        size, unit = size / 1024, unit + 1
    return f"{size:.0f}{'BKMG'[unit]}" if size.is_integer() else f"{size:.1f}{'BKMG'[unit]}"


def numbered(lines: Sequence[str], first: int) -> Iterator[str]:
    """Yield lines with their numbers. The first line has the number ``first``."""
    return (f"{number:>{_WIDTH}}\t{line}" for number, line in enumerate(lines, first))


def content(text: str, typed_path: str, view_range: Sequence[int] | None) -> str:
    """Return the lines of a file with their numbers.

    Args:
        text: The text of the file.
        typed_path: The path as Claude wrote it.
        view_range: The numbers of the first and the last line, or None for all. A last line of -1 is the end.
    """
    lines = text.split("\n")
    first = 1
    if view_range is not None and len(view_range) == 2:  # noqa: PLR2004  # the first and the last line
        first = max(1, view_range[0])
        lines = lines[first - 1 : None if view_range[1] == -1 else view_range[1]]
    return f"Here's the content of {typed_path} with line numbers:\n" + "\n".join(numbered(lines, first))


def snippet(text: str, line: int) -> str:
    """Return the lines around the changed line with this number."""
    first = max(1, line - _CONTEXT)
    lines = text.split("\n")[first - 1 : line + _CONTEXT]
    title = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
    return "\n".join([title, *numbered(lines, first)])
