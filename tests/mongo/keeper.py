"""The process between a test and a server it starts, so that no server outlives its test, however that ends.

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
        # Also when the test was killed before it could be answered.
        command.kill()


def main() -> None:
    """Run the command until it ends or standard input does."""
    command = subprocess.Popen(
        sys.argv[1:],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        # safe: there is no other thread yet
        preexec_fn=_die_with_the_keeper if sys.platform == "linux" else None,  # noqa: PLW1509  # as said above
    )
    threading.Thread(target=_obey, args=(command,), daemon=True).start()
    code = command.wait()
    # Not sys.exit, which would wait for the thread that reads standard input.
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
