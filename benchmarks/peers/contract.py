"""The protocol of a measured log, and the description of a library in the table."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agent_memory_log import Event


class Log(Protocol):
    """An open log with one run. Its library may be synchronous or asynchronous."""

    def messages(self, events: Sequence[Event]) -> list[Any]:
        """Return one message of the library for each event, with the same content."""
        ...

    def append_each(self, batches: Sequence[list[Any]]) -> None:
        """Append the batches of messages, one call and one commit for each batch."""
        ...

    def load(self) -> int:
        """Load the whole run as the library does, and return its number of messages."""
        ...


class AsyncLog:
    """The base of an asynchronous library's log. All appends run in one task of one event loop."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.run = runner.run

    async def append(self, batch: list[Any]) -> None:
        """Append a batch of messages."""
        raise NotImplementedError

    async def count(self) -> int:
        """Load the whole run, and return its number of messages."""
        raise NotImplementedError

    def append_each(self, batches: Sequence[list[Any]]) -> None:
        """See ``Log.append_each``."""

        async def append_all() -> None:
            for batch in batches:
                await self.append(batch)

        self.run(append_all())

    def load(self) -> int:
        """See ``Log.load``."""
        return self.run(self.count())


class Peer(msgspec.Struct, frozen=True):
    """A library in the table.

    Attributes:
        name: The name of the library and of its class.
        modules: The modules that must be installed.
        promises: How durable an acknowledged append is, and what the library does not do.
        open: Opens a new log, in a folder or in the database of a URI.
        fill: The number of messages in each append that fills the run for the load.
    """

    name: str
    modules: tuple[str, ...]
    promises: str
    open: Callable[[Any], AbstractContextManager[Log]]
    fill: int = 1

    @property
    def lacking(self) -> str:
        """The name of a module that is not installed, or an empty text."""
        for module in self.modules:
            try:
                if importlib.util.find_spec(module) is None:
                    return module
            except ModuleNotFoundError:  # a package above it
                return module
        return ""


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
