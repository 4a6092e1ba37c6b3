"""Stops the process on Ctrl-C, SIGTERM or SIGHUP. This module imports nothing slow, so that it can be loaded first.

A signal removes the temporary files and ends the process at once. Work that needs more cleanup runs in a ``Graceful``
block. There the first signal only requests a stop, and a second signal ends the process at once. Other code gets no
``KeyboardInterrupt``, so a command ends without a traceback, even during its imports.
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
"""The files that a signal removes. Add a file here before you create it."""

_received: list[int] = []
_stop_requests: list[Callable[[], object]] = []


def install() -> None:
    """Install the signal handlers. Signals that the process ignores, as under ``nohup``, stay ignored."""
    for name in _SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def received_status() -> int:
    """Return the exit status for the received signal, such as 130 for Ctrl-C. Returns 0 if there was no signal."""
    return _BY_SIGNAL + _received[0] if _received else 0


def forget_signal() -> None:
    """Let a command that a signal ends as it should exit with its own status."""
    _received.clear()


class Graceful:
    """A block in which the first signal calls ``request_stop``, which raises ``KeyboardInterrupt`` by default.

    ``request_stop`` must return at once and make the block end soon. It can run between any two steps of the block.
    """

    def __init__(self, request_stop: Callable[[], object] | None = None) -> None:
        self._request_stop = request_stop or _interrupt

    def __enter__(self) -> None:
        _stop_requests.append(self._request_stop)

    def __exit__(self, *_error: object) -> None:
        _stop_requests.pop()


class SignalPipe:
    """A block whose file descriptor becomes readable on each signal, also on one just before a wait for it begins.

    Without it, a signal between a handler's last chance to run and the wait would be handled only after the wait.
    """

    def __enter__(self) -> int:
        self.receiver, self._sender = os.pipe()
        os.set_blocking(self._sender, False)
        self._previous = signal.set_wakeup_fd(self._sender, warn_on_full_buffer=False)
        return self.receiver

    def __exit__(self, *_error: object) -> None:
        signal.set_wakeup_fd(self._previous)
        os.close(self.receiver)
        os.close(self._sender)


def wait_for_input() -> None:
    """Wait until standard input can be read. A signal ends the wait."""
    if os.name == "nt":
        return  # on Windows, select accepts only sockets
    import select  # noqa: PLC0415  # most commands ask no question

    with SignalPipe() as receiver:
        select.select([0, receiver], [], [])


def _interrupt() -> None:
    raise KeyboardInterrupt


def _stop(number: int, _frame: object) -> None:
    if _received or not _stop_requests:
        for file in tuple(temporary_files):
            try:  # noqa: SIM105  # contextlib is slow to import
                os.unlink(file)  # noqa: PTH108  # pathlib is slow to import too
            except OSError:
                pass
        os._exit(_BY_SIGNAL + number)
    _received.append(number)
    _stop_requests[-1]()
