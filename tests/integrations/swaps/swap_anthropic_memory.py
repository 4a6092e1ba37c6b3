"""A plugin of pytest for the tests of the Anthropic SDK: our memory tools take the place of its tools for a folder.

The tests look at the folder. So before each command, the files that a test wrote
there are created in the store, and after it, the files of the store are written to the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic.lib.tools._beta_builtin_memory_tool as _tools
from anthropic.types.beta import BetaMemoryTool20250818CreateCommand
from anyio import Path as AsyncPath
from swapped_store import new_url

from agent_memory_log.integrations.anthropic_memory import AsyncMemoryLogMemoryTool, MemoryLogMemoryTool
from agent_memory_log.integrations.anthropic_memory.commands import UserFiles
from agent_memory_log.integrations.anthropic_memory.files import DIRECTORY, ROOT, read_files


class _InFolder(UserFiles):
    """The files of a user, with a copy in a folder."""

    folder: Path

    def __getattribute__(self, name: str) -> Any:
        attribute = super().__getattribute__(name)
        if name not in {"view", "create", "str_replace", "insert", "delete", "rename"}:
            return attribute

        def command(argument: Any) -> Any:
            self._take()
            try:
                return attribute(argument)
            finally:
                self._give()

        return command

    def _path(self, path: str) -> Path:
        return self.folder / path.removeprefix(ROOT).lstrip("/")

    def _take(self) -> None:
        entries = read_files(self.store, self.run).entries
        for path in self.folder.rglob("*"):
            memory_path = f"{ROOT}/{path.relative_to(self.folder)}"
            if path.is_file() and memory_path not in entries:
                text = path.read_bytes().decode()
                create = BetaMemoryTool20250818CreateCommand(command="create", path=memory_path, file_text=text)
                UserFiles.__dict__["create"](self, create)

    def _give(self) -> None:
        entries = read_files(self.store, self.run).entries
        for path in self.folder.rglob("*"):
            if path.is_file() and f"{ROOT}/{path.relative_to(self.folder)}" not in entries:
                path.unlink()
        for path, entry in entries.items():
            if entry != DIRECTORY:
                self._path(path).parent.mkdir(parents=True, exist_ok=True)
                self._path(path).write_bytes(self._version(entry.seq, path).text.encode())


def _swapped(kind: Any, path: Any) -> type:
    class InFolder(kind):  # type: ignore[misc]  # one of the two classes
        def __init__(self, base_path: str = "./memory") -> None:
            super().__init__(new_url("sqlite"), user="42")
            self.base_path = path(base_path)
            self.memory_root = self.base_path / "memories"
            self._files = _InFolder(self.store, "42")
            self._files.folder = Path(self.memory_root)
            self._files.folder.mkdir(parents=True)

    return InFolder


vars(_tools)["BetaLocalFilesystemMemoryTool"] = _swapped(MemoryLogMemoryTool, Path)
vars(_tools)["BetaAsyncLocalFilesystemMemoryTool"] = _swapped(AsyncMemoryLogMemoryTool, AsyncPath)
