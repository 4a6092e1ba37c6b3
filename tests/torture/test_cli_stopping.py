"""Sends signals to ``amlog`` at random moments and checks that no partial file remains."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from agent_memory_log import PlannerNote, open_sync_store
from tests.amlog import PATIENCE, append, run, start

ROUNDS = 100
EVENTS = 2000
STATUSES = {
    signal.SIGINT: {0, 130, -signal.SIGINT, 1},  # a signal before the first line of amlog gives the last two
    signal.SIGTERM: {0, 143, -signal.SIGTERM},
}
COMMANDS = (
    ("export", "--all", "-o", "out.jsonl"),
    ("copy", "sqlite:///v.db", "sqlite:///copy.db"),
    ("verify",),
    ("show", "r"),
)


def test_signals_at_random_moments_leave_no_partial_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = "sqlite:///v.db"
    append(url, "a", "r", *(PlannerNote(note="n") for _ in range(EVENTS)))
    started = time.monotonic()
    exported = run("export", "--all", "--store", url).out
    export_seconds = time.monotonic() - started
    for _ in range(ROUNDS):
        signal_number = random.choice([signal.SIGINT, signal.SIGTERM])
        process = start(*random.choice(COMMANDS), AMLOG_STORE=url)
        time.sleep(random.uniform(0, 1.2 * export_seconds))
        process.send_signal(signal_number)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode in STATUSES[signal_number], err
        assert b"agent_memory_log/cli/main.py" not in err, err.decode()
        assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
        output = tmp_path / "out.jsonl"
        assert not output.exists() or output.read_text() == exported
        output.unlink(missing_ok=True)
    assert run("copy", url, "sqlite:///copy.db").status == 0
    for copied in (url, "sqlite:///copy.db"):
        with open_sync_store(copied) as store:
            assert len(store.load_run("a", "r").events) == EVENTS
