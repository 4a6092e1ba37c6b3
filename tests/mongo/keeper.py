"""Runs a server for a test, and kills the server when the test ends, even if the test was killed.

``python keeper.py COMMAND ...`` runs the command, whose output goes to standard error. Each line of standard
input names a signal for the command. The keeper repeats the line on standard output after it sent the signal. If the
signal stops the command, it first waits for the stop. When the test closes standard input or is killed, the keeper
kills the command.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1


def _die_with_the_keeper() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _obey(command: subprocess.Popen[bytes]) -> None:
    try:
        for line in sys.stdin:
            number = signal.Signals[line.strip()]
            command.send_signal(number)
            if number == signal.SIGSTOP and hasattr(os, "waitid"):
                os.waitid(os.P_PID, command.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            os.write(1, line.encode())
    finally:
        # This also runs if the test was killed before the keeper could write to it.
        command.kill()


def main() -> None:
    """Run the command until it ends, or until standard input ends."""
    command = subprocess.Popen(
        sys.argv[1:],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        # A function before exec is safe here, because there is no other thread yet.
        preexec_fn=_die_with_the_keeper if sys.platform == "linux" else None,  # noqa: PLW1509  # no other thread runs
    )
    threading.Thread(target=_obey, args=(command,), daemon=True).start()
    code = command.wait()
    # ``sys.exit`` would wait for the thread that reads standard input.
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
