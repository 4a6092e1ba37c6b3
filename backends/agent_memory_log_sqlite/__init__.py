"""The SQLite backend: one file, no server, every acknowledged append on disk.

``open_store("sqlite:///runs.db")`` is relative to the working directory, ``sqlite:////var/runs.db`` absolute. Any
number of threads and processes of one machine may share a file; network file systems cannot hold one. Options stand
after ``?``:

- ``durability``: ``full`` (the default: an append is acknowledged after an fsync) or ``os`` (after the operating system
  has it: survives a killed process, not a power failure);
- ``mode``: ``rw`` (the default: the file is created when missing) or ``ro``;
- ``busy_timeout_ms``: how long to wait for other processes' writes, in milliseconds (default 30,000);
- ``max_event_bytes``: the largest event, as encoded (default 64 MiB; a batch may have 16 times that).
"""

from agent_memory_log_sqlite.backend import backend
from agent_memory_log_sqlite.schema import SCHEMA_VERSION, Settings
from agent_memory_log_sqlite.store import SqliteStore
from agent_memory_log_sqlite.sync import SyncSqliteStore

__all__ = ["SCHEMA_VERSION", "Settings", "SqliteStore", "SyncSqliteStore", "backend"]
