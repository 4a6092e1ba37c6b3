"""Opens a store by its URL, whose scheme names a backend. Installed packages register backends as entry points."""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import TracebackType
from typing import cast

from agent_memory_log.backend_kit.urls import Backend, KeepsFiles, StoreUrl
from agent_memory_log.errors import BackendNotFound
from agent_memory_log.store import Store, SyncStore

ENTRY_POINT_GROUP = "agent_memory_log.backends"
"""The entry-point group of backends. An entry's name is a URL scheme, its value an object with the ``Backend``
protocol.
"""

_KNOWN_EXTRAS = {"mongodb": "mongo", "mongodb+srv": "mongo", "http": "remote", "https": "remote"}


class OpeningStore:
    """The result of ``open_store``. ``async with`` opens the store and closes it at the end.

    ``await`` opens the store too, but then the caller must close it.
    """

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

    The URLs of the included backends:

    - ``memory:`` is a new, empty store. ``memory:NAME`` is a store that this process shares by name.
    - ``sqlite:///runs.db`` is a file, relative to the working directory. ``sqlite:////var/runs.db`` is an absolute
      path.
    - ``mongodb://…`` and ``mongodb+srv://…`` are a MongoDB database. They need the ``mongo`` extra.
    - ``https://host/path`` is the store of a server, such as ``amlog serve``. It needs the ``remote`` extra. The token
      is in the environment variable ``AMLOG_TOKEN``, or in the variable of ``?token_env=NAME``, never in the URL.
      ``?timeout=`` is the time limit of a call in seconds (default 30). ``?ca=FILE`` has the certificates of a private
      authority. ``http://`` reaches only this machine, unless the URL has ``?insecure=on``.

    Other installed packages may add schemes. The store is opened, and errors are raised, when the result is entered or
    awaited.

    Raises:
        BackendNotFound: No installed package serves the URL's scheme.
        InvalidArgument: The URL or one of its options is invalid.
        StoreUnavailable: The file or the server cannot be opened.
        SchemaTooNew: A newer release wrote the store.
    """
    return OpeningStore(url)


def open_sync_store(url: str) -> SyncStore:
    """Open the store at ``url`` without ``await``. Use the result in a ``with`` block, or call ``close()``.

    See ``open_store`` for the URLs and the errors. This function opens the store and raises immediately.
    """
    parsed = StoreUrl.parse(url)
    return find_backend(parsed).open_sync_store(parsed)


def store_files(url: str) -> tuple[Path, ...]:
    """Return every file that the store at ``url`` has or may create, the main file first.

    The store need not exist, and is not opened. The result is empty for a store without files.

    Raises:
        BackendNotFound: No installed package serves the URL's scheme.
        InvalidArgument: The URL or one of its options is invalid.
    """
    parsed = StoreUrl.parse(url)
    backend = find_backend(parsed)
    return backend.files(parsed) if isinstance(backend, KeepsFiles) else ()


def installed_backends() -> dict[str, EntryPoint]:
    """Return the entry points of the installed backends by URL scheme, without importing them."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def install_hint(scheme: str, otherwise: str) -> str:
    """Return the command that installs the backend of a URL scheme, or ``otherwise`` if this project has no such
    backend.
    """
    extra = _KNOWN_EXTRAS.get(scheme)
    return f"pip install 'agent-memory-log[{extra}]'" if extra else otherwise


def find_backend(url: StoreUrl) -> Backend:
    """Import and return the backend that serves the URL's scheme. Raises ``BackendNotFound``, which says what to
    install.
    """
    return _backend_of(url.scheme)


@cache  # to read the entry points of all installed packages takes milliseconds; an error is not kept
def _backend_of(scheme: str) -> Backend:
    installed = installed_backends()
    entry = installed.get(scheme)
    if entry is None:
        hint = install_hint(scheme, "install the package that provides it")
        schemes = ", ".join(sorted(installed)) or "none"
        raise BackendNotFound(f"no installed backend serves {scheme}: URLs ({hint}); installed: {schemes}")
    try:
        return cast("Backend", entry.load())
    except (ImportError, AttributeError) as error:
        hint = install_hint(scheme, "install the packages it needs")
        raise BackendNotFound(
            f"the backend for {scheme}: URLs ({entry.value}) cannot be imported: {error}; {hint}"
        ) from error
