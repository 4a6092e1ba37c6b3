"""The life of a handle: open until it is closed, and then, after a fork or on another event loop, a clear error."""

from __future__ import annotations

import asyncio
import os
import weakref
from types import TracebackType
from typing import Self

from agent_memory_log.errors import StoreClosed

_CLOSED = "this store handle is closed: open a new one"
_FORKED = (
    "this store handle was opened before a fork, and its connection belongs to the parent: open one in this process"
)
_OTHER_LOOP = "this store handle belongs to another event loop: open one on this loop"


class Handle:
    """A handle's state: subclasses call ``_check_open()`` before they touch their data, ``_mark_closed()`` on closing.

    Those whose driver must not be inherited by a forked child override ``hold_still``, ``go_on`` and ``disown``.
    """

    _unusable: str | None = None
    """Why the handle cannot be used any more; None while it can."""

    def __init__(self) -> None:
        _open_handles.add(self)

    def is_open(self) -> bool:
        """Whether the handle can still be used."""
        return self._unusable is None

    def _check_open(self) -> None:
        if self._unusable is not None:
            raise StoreClosed(self._unusable)

    def hold_still(self) -> None:
        """Before a fork: wait until no thread is inside the driver, and keep them out until ``go_on`` or ``disown``."""

    def go_on(self) -> None:
        """After a fork, in the parent: undo ``hold_still``."""

    def disown(self) -> None:
        """After a fork, in the child: refuse any further use, and let go of what the driver holds."""
        self._unusable = self._unusable or _FORKED

    def _mark_closed(self) -> bool:
        """Mark the handle closed; whether it was open, and so still has things to release."""
        was_open = self._unusable is None
        if was_open:
            self._unusable = _CLOSED
        return was_open


class AsyncHandle(Handle):
    """A handle that belongs to the event loop it was opened on."""

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
        """Close the handle; what was acknowledged stays. Closing again does nothing."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()


class SyncHandle(Handle):
    """A handle for threads."""

    def close(self) -> None:
        """Close the handle; what was acknowledged stays. Closing again does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


_open_handles: weakref.WeakSet[Handle] = weakref.WeakSet()


_held_still: list[Handle] = []


def _before_fork() -> None:
    for handle in list(_open_handles):
        if handle.is_open():
            handle.hold_still()
            _held_still.append(handle)


def _after_fork_in_parent() -> None:
    while _held_still:
        _held_still.pop().go_on()


def _after_fork_in_child() -> None:
    while _held_still:
        _held_still.pop().disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
