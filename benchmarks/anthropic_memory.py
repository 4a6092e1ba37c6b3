"""The rows and numbers of Anthropic's memory tool, beside the SDK's own tool for a folder.

Both have 20 files of about 2 KB. The SDK's tool keeps the newest version of each, and ours keeps every version.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

from anthropic.lib.tools import BetaAbstractMemoryTool
from anthropic.tools import BetaLocalFilesystemMemoryTool

from agent_memory_log.integrations.anthropic_memory import MemoryLogMemoryTool
from benchmarks.measure import Progress, Ratio, compare, timed
from benchmarks.scratch import scratch
from benchmarks.table import Figure, Row

_FILES = 20
_EDITS = 200
_VIEWS = 50
_PROCESSES = 2
_LINES = 200
_AGAINST = "its tool for a folder"
_TEXT = "".join(f"- order {number} left the warehouse and arrives on Friday\n" for number in range(38))

Open = Callable[[Path], BetaAbstractMemoryTool]


def rows(fast: Path, disk: Path) -> list[Row]:
    """Return every comparison."""
    name = "Anthropic memory"
    return [
        Row(f"{name}, edit a file", _AGAINST, None, lambda n, p: _edits(fast, n, p)),
        Row(f"{name}, edit a file, on disk", _AGAINST, None, lambda n, p: _edits(disk, n, p)),
        Row(f"{name}, view a file after {_EDITS} edits", _AGAINST, None, lambda n, p: _views(fast, "/s1.md", n, p)),
        Row(f"{name}, view the list of files", _AGAINST, None, lambda n, p: _views(fast, "", n, p)),
        Row(f"{name}, lines that 2 processes lose", _AGAINST, None, lambda _, __: lost(disk)),
    ]


def figures(disk: Path) -> list[Figure]:
    """Return every plain number."""
    return [Figure(f"Anthropic memory, bytes of {_EDITS} versions", "of their texts", 2.5, lambda: bytes_on_disk(disk))]


def _of_library(folder: Path) -> BetaAbstractMemoryTool:
    return MemoryLogMemoryTool(f"sqlite:///{folder / 'ours.db'}", user="42")


def _of_sdk(folder: Path) -> BetaAbstractMemoryTool:
    return BetaLocalFilesystemMemoryTool(str(folder / "theirs"))


def _close(tool: BetaAbstractMemoryTool) -> None:
    if isinstance(tool, MemoryLogMemoryTool):
        tool.close()


def _fill(tool: BetaAbstractMemoryTool) -> None:
    for number in range(_FILES):
        tool.call({"command": "create", "path": f"/memories/s{number}.md", "file_text": f"edit 0.\n{_TEXT}"})


def _edit(tool: BetaAbstractMemoryTool) -> None:
    for number in range(_EDITS):
        turn = number // _FILES
        path = f"/memories/s{number % _FILES}.md"
        texts = {"old_str": f"edit {turn}.", "new_str": f"edit {turn + 1}."}
        tool.call({"command": "str_replace", "path": path, **texts})


def _edits(parent: Path, rounds: int, progress: Progress) -> Ratio:
    def side(opened: Open) -> float:
        with scratch(parent) as folder:
            tool = opened(folder)
            _fill(tool)
            seconds = timed(lambda: _edit(tool), _EDITS)
            _close(tool)
            return seconds

    return compare(lambda: side(_of_library), lambda: side(_of_sdk), rounds, progress)


def _views(parent: Path, path: str, rounds: int, progress: Progress) -> Ratio:
    command = {"command": "view", "path": f"/memories{path}"}
    with scratch(parent) as folder:
        log_tool, folder_tool = _of_library(folder), _of_sdk(folder)
        for tool in (log_tool, folder_tool):
            _fill(tool)
            _edit(tool)

        def side(tool: BetaAbstractMemoryTool) -> float:
            return timed(lambda: [tool.call(command) for _ in range(_VIEWS)], _VIEWS)

        ratio = compare(lambda: side(log_tool), lambda: side(folder_tool), rounds, progress)
        _close(log_tool)
        return ratio


def lost(parent: Path) -> str:
    """Insert lines into one file in two processes at once, and return how many lines are lost on each side."""
    counts: list[int] = []
    for opened in (_of_library, _of_sdk):
        with scratch(parent) as folder:
            tool = opened(folder)
            tool.call({"command": "create", "path": "/memories/log.md", "file_text": ""})
            spawn = multiprocessing.get_context("spawn")
            start = spawn.Barrier(_PROCESSES)
            processes = [spawn.Process(target=_insert, args=(opened, folder, start)) for _ in range(_PROCESSES)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            view = str(tool.call({"command": "view", "path": "/memories/log.md"}))
            counts.append(_PROCESSES * _LINES - view.count("a line"))
            _close(tool)
    return f"{counts[0]} of {_PROCESSES * _LINES}; its tool: {counts[1]}"


def _insert(opened: Open, folder: Path, start: Barrier) -> None:
    tool = opened(folder)
    start.wait()
    for _ in range(_LINES):
        tool.call({"command": "insert", "path": "/memories/log.md", "insert_line": 0, "insert_text": "a line"})
    _close(tool)


def bytes_on_disk(parent: Path) -> float:
    """Return the size of our file after the edits, as a part of the size of all texts that it holds."""
    with scratch(parent) as folder:
        tool = _of_library(folder)
        _fill(tool)
        _edit(tool)
        _close(tool)
        size = sum(path.stat().st_size for path in folder.iterdir())
    return size / ((_FILES + _EDITS) * len(f"edit 0.\n{_TEXT}"))
