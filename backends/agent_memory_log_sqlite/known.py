"""What a handle that writes remembers of its runs, and whether the file still holds it."""

from __future__ import annotations

import random

from agent_memory_log_sqlite.failures import translating
from agent_memory_log_sqlite.file import OpenFile
from agent_memory_log_sqlite.rows import SEQ_BITS, RunRow

_MOST_RUNS = 10_000

_RUNS_COMPARED = 8
_EVENTS_COMPARED = 8
"""How many runs, the newest, and how many events of each are looked for when more than an append wrote to the file."""


class Known:
    """A run after the handle's last append. ``name`` is ``name_sum`` of its agent and run."""

    __slots__ = ("base", "expires_at", "name", "run_id", "version")

    def __init__(self, name: int, run_id: int, base: int, version: int, expires_at: int | None) -> None:
        self.name = name
        self.run_id = run_id
        self.base = base
        self.version = version
        self.expires_at = expires_at


class KnownRuns(dict[tuple[str, str], Known]):
    """What is remembered, by agent and run."""

    def __init__(self, file: OpenFile) -> None:
        super().__init__()
        self._file = file

    def remember(self, agent: str, run: str, known: Known) -> None:
        """Remember a run, and forget another one where there are too many."""
        if len(self) >= _MOST_RUNS and (agent, run) not in self:
            del self[next(iter(self))]
        self[agent, run] = known

    def check_file(self) -> None:
        """Raise ``StoreUnavailable`` unless what was committed stands in the file at the path."""
        if self._file.check():
            with translating(self._file.path):
                for name, _ in zip(reversed(self), range(_RUNS_COMPARED), strict=False):
                    self._compare(name, self[name])

    def check_version(self, agent: str, run: str, found: RunRow) -> None:
        """Raise ``StoreUnavailable`` where a run went back, which not even its deletion does."""
        known = self.get((agent, run))
        if known is not None and found.version < known.version:
            raise self._file.overwritten(f"{agent}/{run} is at version {found.version}, and was at {known.version}")

    def _compare(self, name: tuple[str, str], known: Known) -> None:
        held = range(known.base + 1, known.version + 1)
        seqs = {known.version, *random.sample(held, min(_EVENTS_COMPARED, len(held)))}
        row = self._file.connection.execute(
            f"SELECT base_seq, (SELECT count(*) FROM events WHERE id IN ({', '.join('?' * len(seqs))})) FROM runs WHERE id = ?",  # noqa: E501, S608  # of constants and question marks
            (*(known.run_id << SEQ_BITS | seq for seq in seqs), known.run_id),
        ).fetchone()
        # A deletion raises the base.
        if row is None or (row[0] <= known.base and row[1] < len(seqs)):
            raise self._file.overwritten(f"{'/'.join(name)} has lost events that it held")
