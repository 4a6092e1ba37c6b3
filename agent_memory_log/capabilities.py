"""Optional capabilities of a store: releasing unused space, making a backup while others write, and
keeping search indexes beside the store.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Protocol, overload, runtime_checkable

import msgspec

from agent_memory_log.store import Store, SyncStore


class CompactResult(msgspec.Struct, frozen=True):
    """The result of ``compact``: the store's size on disk.

    Attributes:
        before: The size before the call, in bytes.
        after: The size after the call, in bytes.
    """

    before: int
    after: int


@runtime_checkable
class Compacts(Protocol):
    """A ``Store`` or a ``SyncStore`` that can release unused space. Test for it with ``isinstance``.

    ``compact`` releases unused space and permanently erases data that was redacted or deleted before the call. It
    raises ``StoreUnavailable`` when another handle prevents it, for example an open reader. No data is lost; retry
    later.
    """

    @overload
    def compact(self: Store) -> Coroutine[Any, Any, CompactResult]: ...

    @overload
    def compact(self: SyncStore) -> CompactResult: ...


class BackupResult(msgspec.Struct, frozen=True):
    """The result of ``backup``.

    Attributes:
        runs: How many runs the backup holds, including the library's own.
        events: How many events the backup holds.
        size: The size of the backup in bytes.
    """

    runs: int
    events: int
    size: int


@runtime_checkable
class BacksUp(Protocol):
    """A ``Store`` or a ``SyncStore`` that can be copied to a file while others write to it. Test for it with
    ``isinstance``.

    ``backup`` copies the store, as it is at one instant of the call, to the file ``target``. Redacted and deleted data
    is not in the backup. The copy is opened and checked before it gets its name, so a file at ``target`` is a complete
    backup. ``backup`` raises ``InvalidArgument`` when ``target`` already exists or is the store itself, and
    ``StoreCorrupt`` when the copy is incomplete, for example because the store is damaged.
    """

    @overload
    def backup(self: Store, target: str | os.PathLike[str]) -> Coroutine[Any, Any, BackupResult]: ...

    @overload
    def backup(self: SyncStore, target: str | os.PathLike[str]) -> BackupResult: ...


class IndexFolder(msgspec.Struct, frozen=True):
    """A folder for search indexes, which can be made again from the store.

    Attributes:
        path: The folder. It need not exist.
        mode: The permissions of its files, which are those of the store.
    """

    path: Path
    mode: int


@runtime_checkable
class KeepsIndexes(Protocol):
    """A ``Store`` or a ``SyncStore`` on this machine, beside which search indexes may be kept."""

    @property
    def index_folder(self) -> IndexFolder | None:
        """The folder of this store's indexes, or None if nothing may be written, for a read-only handle."""
        ...
