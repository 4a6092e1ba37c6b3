"""The parts that all integrations share: the store that they use, and the error for a missing framework.

An integration uses a ``SyncStore``, because frameworks call it from several threads and event loops. Asynchronous
methods call the store in a thread.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.integrations.threads import in_thread
from agent_memory_log.opening import open_sync_store
from agent_memory_log.steps import all_runs, run_sync
from agent_memory_log.store import RunInfo, SyncStore


class StoreOwner:
    """Holds the store of an integration, as its base class.

    Args:
        store: The URL of a store, which is opened here and closed by ``close``, or an open store, which its owner
            closes. See ``open_sync_store`` for the URLs and the errors.

    Raises:
        InvalidArgument: ``store`` is neither a URL nor an open ``SyncStore``.
    """

    def __init__(self, store: str | SyncStore) -> None:
        if isinstance(store, str):
            self._owns_store = True
            self.store = open_sync_store(store)
        elif callable(getattr(store, "close", None)) and callable(getattr(store, "append_events", None)):
            self._owns_store = False
            self.store = store
        else:
            raise InvalidArgument(f"expected the URL of a store or an open SyncStore, got {describe(store)}")

    def close(self) -> None:
        """Close the store if it was opened here. Closing it again does nothing."""
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class AsyncStoreOwner:
    """``StoreOwner`` for a framework that awaits ``close``."""

    def __init__(self, store: str | SyncStore) -> None:
        self._owner = StoreOwner(store)
        self.store = self._owner.store

    async def close(self) -> None:
        """Close the store if it was opened here. Closing it again does nothing."""
        await in_thread(self._owner.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.close()


def runs_of(store: SyncStore, agent: str | None = None) -> list[RunInfo]:
    """Return all runs of an agent, or of all agents, the most recently created first."""
    return run_sync(all_runs(agent), store)


@contextmanager
def needs_extra(extra: str) -> Generator[None]:
    """Import a framework inside this block. A failure raises an ``ImportError`` that names the pip command."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"this integration needs a package that cannot be imported ({error}): "
            f"pip install 'agent-memory-log[{extra}]'",
            name=error.name,
        ) from error
