"""The memory tool for the SDK's tool runner, with and without ``await``."""

from __future__ import annotations

from typing import Any

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
from anthropic.types.beta import (
    BetaCacheControlEphemeralParam,
    BetaMemoryTool20250818Command,
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)
from pydantic import ValidationError

from agent_memory_log.events.fields import describe
from agent_memory_log.integrations.anthropic_memory.commands import UserFiles
from agent_memory_log.integrations.opening import StoreOwner
from agent_memory_log.integrations.threads import in_thread
from agent_memory_log.store import SyncStore
from agent_memory_log.transcript.json_types import map_in

_COMMANDS: dict[object, type[BetaMemoryTool20250818Command]] = {
    "view": BetaMemoryTool20250818ViewCommand,
    "create": BetaMemoryTool20250818CreateCommand,
    "str_replace": BetaMemoryTool20250818StrReplaceCommand,
    "insert": BetaMemoryTool20250818InsertCommand,
    "delete": BetaMemoryTool20250818DeleteCommand,
    "rename": BetaMemoryTool20250818RenameCommand,
}


class MemoryLogMemoryTool(StoreOwner, BetaAbstractMemoryTool):
    """Claude's memory tool for ``client.beta.messages.tool_runner``. It stores the files of one user in a run.

        runner = client.beta.messages.tool_runner(..., tools=[MemoryLogMemoryTool("sqlite:///runs.db", user="42")])

    The run of the agent ``anthropic-memory`` has the id of the user. In an id of a run, ``/`` becomes ``%2F`` and ``%``
    becomes ``%25``. An id that is too long ends in its hash.

    Every version of a file stays in the log until ``forget`` or ``clear_all_memory`` erases it. Any number of tools,
    threads and processes may serve the same user.

    Args:
        store: The URL of a store, or an open store. A store that is opened from a URL is closed by ``close``.
        user: The id of the user. Arguments of the model never reach the files of another user.
        cache_control: The cache control of the SDK's definition of the tool.

    Raises:
        InvalidArgument: ``user`` is not text or is empty, or ``store`` is neither a URL nor an open store.
    """

    def __init__(
        self, store: str | SyncStore, *, user: str, cache_control: BetaCacheControlEphemeralParam | None = None
    ) -> None:
        StoreOwner.__init__(self, store)
        BetaAbstractMemoryTool.__init__(self, cache_control=cache_control)
        self._files = UserFiles(self.store, user)

    def call(self, input: object) -> str:  # noqa: A002  # the SDK's name
        """Run the command that Claude wrote. Raises ``ToolError`` with the text that Claude reads."""
        return str(self.execute(_command_of(input)))

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Return the content of a directory or a file. It costs the list of files and the file."""
        return self._files.view(command)

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Create a file and the directories above it."""
        return self._files.create(command)

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that occurs once in a file."""
        return self._files.str_replace(command)

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text after a line of a file."""
        return self._files.insert(command)

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Remove a file, or a directory with everything below it. The versions stay in the log."""
        return self._files.delete(command)

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Rename a file, or a directory with everything below it."""
        return self._files.rename(command)

    def clear_all_memory(self) -> str:
        """Erase all files of the user and their history."""
        return self._files.clear()

    def forget(self, path: str) -> int:
        """Erase the files that are or were at a path or below it: all their versions, and the changes that name them.

        A file that has another path now is not erased: forget it at its new path. The call reads the whole run. If it
        fails, call it again.

        Args:
            path: The path of a file or a directory, which may have been deleted.

        Returns:
            The number of events that were erased.

        Raises:
            ToolError: The path is not valid.
        """
        return self._files.forget(path)


class AsyncMemoryLogMemoryTool(StoreOwner, BetaAsyncAbstractMemoryTool):
    """``MemoryLogMemoryTool`` for ``AsyncAnthropic``. Each method does the same as the method of that name there."""

    def __init__(
        self, store: str | SyncStore, *, user: str, cache_control: BetaCacheControlEphemeralParam | None = None
    ) -> None:
        StoreOwner.__init__(self, store)
        BetaAsyncAbstractMemoryTool.__init__(self, cache_control=cache_control)
        self._files = UserFiles(self.store, user)

    async def call(self, input: object) -> str:  # noqa: A002  # the SDK's name
        """See ``MemoryLogMemoryTool.call``."""
        return str(await self.execute(_command_of(input)))

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """See ``MemoryLogMemoryTool.view``."""
        return await in_thread(lambda: self._files.view(command))

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """See ``MemoryLogMemoryTool.create``."""
        return await in_thread(lambda: self._files.create(command))

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """See ``MemoryLogMemoryTool.str_replace``."""
        return await in_thread(lambda: self._files.str_replace(command))

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """See ``MemoryLogMemoryTool.insert``."""
        return await in_thread(lambda: self._files.insert(command))

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """See ``MemoryLogMemoryTool.delete``."""
        return await in_thread(lambda: self._files.delete(command))

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """See ``MemoryLogMemoryTool.rename``."""
        return await in_thread(lambda: self._files.rename(command))

    async def clear_all_memory(self) -> str:
        """See ``MemoryLogMemoryTool.clear_all_memory``."""
        return await in_thread(self._files.clear)

    async def forget(self, path: str) -> int:
        """See ``MemoryLogMemoryTool.forget``."""
        return await in_thread(lambda: self._files.forget(path))


def _command_of(arguments: object) -> Any:  # noqa: ANN401  # a union that the SDK narrows
    """Return the command that Claude wrote as a map.

    Raises:
        ToolError: It is no map with a known command and its fields. The message names each wrong field.
    """
    name = map_in(arguments).get("command")
    kind = _COMMANDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ToolError(f"`command` must be one of {', '.join(map(str, _COMMANDS))}, got {describe(name)}")
    try:
        return kind.model_validate(arguments)
    except ValidationError as error:
        wrong = [f"`{'.'.join(map(str, item['loc']))}`: {item['msg']}" for item in error.errors()]
        raise ToolError(f"Invalid input of {name}: {'; '.join(wrong)}") from error
