"""The base classes of handles. A handle that is closed, forked or on another event loop raises a clear error."""

from __future__ import annotations

import asyncio
import os
import weakref
from types import TracebackType
from typing import Self

from agent_memory_log.errors import StoreClosed

_CLOSED = "this store handle is closed: open a new one"
_FORKED = (
    "this store handle was opened before a fork, and its connection belongs to the parent: open a new one in this "
    "process"
)
_OTHER_LOOP = "this store handle belongs to another event loop: open a new one on this loop"


class Handle:
    """The state of a handle.

    A subclass calls ``_check_open()`` before it uses its data, and ``_mark_closed()`` when it is closed. If a forked
    child must not use the driver of its parent, the subclass overrides ``pause_for_fork``, ``resume_after_fork`` and
    ``disown``.
    """

    _unusable: str | None = None
    """The error message for any use of the handle, or None while the handle is open."""

    def __init__(self) -> None:
        _open_handles.add(self)

    def is_open(self) -> bool:
        """Return whether the handle can be used."""
        return self._unusable is None

    def _check_open(self) -> None:
        if self._unusable is not None:
            raise StoreClosed(self._unusable)

    def pause_for_fork(self) -> None:
        """Wait until no thread uses the driver, and keep threads out of it. It is called before a fork."""

    def resume_after_fork(self) -> None:
        """Let threads use the driver again. It is called in the parent after a fork."""

    def disown(self) -> None:
        """Refuse any further use, and release the driver's resources. It is called in the child after a fork."""
        self._unusable = self._unusable or _FORKED

    def _mark_closed(self) -> bool:
        """Mark the handle as closed, and return whether it was open and still has resources to release."""
        was_open = self._unusable is None
        if was_open:
            self._unusable = _CLOSED
        return was_open


class AsyncHandle(Handle):
    """A handle that belongs to the event loop on which it was opened."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()

    def _check_open(self) -> None:
        if self._unusable is not None:
            raise StoreClosed(self._unusable)
        self._check_loop()

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise StoreClosed(_OTHER_LOOP)

    async def aclose(self) -> None:
        """Close the handle. Acknowledged appends stay stored. A second call does nothing."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()


class SyncHandle(Handle):
    """A handle that threads may share."""

    def close(self) -> None:
        """Close the handle. Acknowledged appends stay stored. A second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


_open_handles: weakref.WeakSet[Handle] = weakref.WeakSet()


_paused: list[Handle] = []


def _before_fork() -> None:
    for handle in list(_open_handles):
        if handle.is_open():
            handle.pause_for_fork()
            _paused.append(handle)


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop().resume_after_fork()


def _after_fork_in_child() -> None:
    while _paused:
        _paused.pop().disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
