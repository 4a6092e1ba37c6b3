"""Changes rows of an SQLite file directly and updates their checksums."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from agent_memory_log_sqlite.row_format import RUN_COLUMNS, RunRow


def set_in_run(path: Path, column: str, value: object, run: str) -> None:
    """Change ``column`` of the run with this name, as if the store had written the value."""
    connection = sqlite3.connect(path)
    assert connection.execute(f"UPDATE runs SET {column} = ? WHERE run = ?", (value, run)).rowcount == 1
    agent, *row = connection.execute(f"SELECT agent, {RUN_COLUMNS} FROM runs WHERE run = ?", (run,)).fetchone()
    connection.execute("UPDATE runs SET sum = ? WHERE run = ?", (RunRow(*row).summed(agent, run), run))
    connection.commit()
    connection.close()
