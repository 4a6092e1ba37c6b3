"""Stopping on Ctrl-C, SIGTERM or SIGHUP, at any moment of the process. Imports nothing that takes time.

A signal ends the process at once, and removes its temporary files. Work that must clean up more than those is done in a
``Graceful`` block: the first signal then only asks it to end, and a second one ends the process at once.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # see agent_memory_log
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
_BY_SIGNAL = 128

temporary_files: set[Path] = set()
"""The files to remove when a signal ends the process; a file is added before it is created."""

_received: list[int] = []
_asks: list[Callable[[], object]] = []


def install() -> None:
    """Handle the signals, except those that this process was started to ignore, as with ``nohup``."""
    for name in _SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def received_status() -> int:
    """The exit status after a signal, such as 130 after Ctrl-C; 0 when none came."""
    return _BY_SIGNAL + _received[0] if _received else 0


class Graceful:
    """A block in which the first signal calls ``ask``, by default raises ``KeyboardInterrupt``.

    ``ask`` makes the block end soon and returns at once: it runs between any two steps of the block.
    """

    def __init__(self, ask: Callable[[], object] | None = None) -> None:
        self._ask = ask or _interrupt

    def __enter__(self) -> None:
        _asks.append(self._ask)

    def __exit__(self, *_error: object) -> None:
        _asks.pop()


def wait_for_input() -> None:
    """Wait until standard input can be read. A signal that comes just before the wait begins ends it too."""
    if os.name == "nt":
        return  # it can wait for sockets only
    import select  # noqa: PLC0415  # most commands ask nothing

    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    previous = signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
    try:
        select.select([0, receiver], [], [])
    finally:
        signal.set_wakeup_fd(previous)
        os.close(receiver)
        os.close(sender)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _stop(number: int, _frame: object) -> None:
    if _received or not _asks:
        for file in tuple(temporary_files):
            try:  # noqa: SIM105  # contextlib takes time to import
                os.unlink(file)  # noqa: PTH108  # and so does pathlib
            except OSError:
                pass
        os._exit(_BY_SIGNAL + number)
    _received.append(number)
    _asks[-1]()
