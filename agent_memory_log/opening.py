"""Opening a store by its URL: the scheme names a backend, which an installed package registers as an entry point."""

from __future__ import annotations

from collections.abc import Generator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import TracebackType
from typing import cast

from agent_memory_log.backend_kit.urls import Backend, KeepsFiles, StoreUrl
from agent_memory_log.errors import BackendNotFound
from agent_memory_log.store import Store, SyncStore

ENTRY_POINT_GROUP = "agent_memory_log.backends"
"""The entry-point group: a name is a URL scheme, a value an object with the ``Backend`` protocol."""

_KNOWN_EXTRAS = {"mongodb": "mongo", "mongodb+srv": "mongo"}


class OpeningStore:
    """A store about to be opened: ``async with`` it, or ``await`` it and close the store yourself."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: Store | None = None

    async def _open(self) -> Store:
        url = StoreUrl.parse(self._url)
        return await find_backend(url).open_store(url)

    def __await__(self) -> Generator[object, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._store is not None:
            await self._store.aclose()


def open_store(url: str) -> OpeningStore:
    """Open the store at ``url``, with ``async with`` or ``await``.

        async with open_store(url) as store: ...
        store = await open_store(url)

    ``memory:`` is a new, empty store, ``memory:NAME`` one that this process shares by name; ``sqlite:///runs.db`` a
    file, relative to the working directory, ``sqlite:////var/runs.db`` an absolute one. Installed packages add schemes.
    Raises ``BackendNotFound``, ``InvalidArgument``, ``StoreUnavailable``, ``SchemaTooNew`` on entering.
    """
    return OpeningStore(url)


def open_sync_store(url: str) -> SyncStore:
    """``open_store`` without ``await``: opens at once; use the store in a ``with`` block, or ``close()`` it."""
    parsed = StoreUrl.parse(url)
    return find_backend(parsed).open_sync_store(parsed)


def store_files(url: str) -> tuple[Path, ...]:
    """Every file that the store at ``url`` has or may come to have, its main one first.

    Empty for a store without files. The store need not exist, and is not opened. Raises
    ``BackendNotFound`` and ``InvalidArgument``.
    """
    parsed = StoreUrl.parse(url)
    backend = find_backend(parsed)
    return backend.files(parsed) if isinstance(backend, KeepsFiles) else ()


def installed_backends() -> dict[str, EntryPoint]:
    """The installed backends by URL scheme; nothing is imported."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def install_hint(scheme: str, otherwise: str) -> str:
    """What to install for a URL scheme; ``otherwise`` for one that is not this project's."""
    extra = _KNOWN_EXTRAS.get(scheme)
    return f"pip install 'agent-memory-log[{extra}]'" if extra else otherwise


def find_backend(url: StoreUrl) -> Backend:
    """The backend that serves the URL's scheme. Raises ``BackendNotFound`` saying what to install."""
    installed = installed_backends()
    entry = installed.get(url.scheme)
    if entry is None:
        hint = install_hint(url.scheme, "install the package that provides it")
        known = ", ".join(sorted(installed)) or "none"
        raise BackendNotFound(f"no installed backend serves {url.scheme}: URLs ({hint}); installed: {known}")
    try:
        return cast("Backend", entry.load())
    except (ImportError, AttributeError) as error:
        hint = install_hint(url.scheme, "install what it needs")
        raise BackendNotFound(
            f"the backend for {url.scheme}: URLs ({entry.value}) cannot be imported: {error}; {hint}"
        ) from error
