"""The SQLite backend: one file, no server, and every acknowledged append on disk.

The path in ``open_store("sqlite:///runs.db")`` is relative to the working directory. The path in
``sqlite:////var/runs.db`` is absolute. Any number of threads and processes on one machine can share a file. The file
must be on a local disk, not on a network file system. Options follow the ``?`` of the URL:

- ``durability``: ``full`` or ``os``, default ``full``. With ``full``, an append is acknowledged after an fsync. With
  ``os``, it is acknowledged when the operating system has the data. The data then survives a killed process, but not a
  power failure.
- ``mode``: ``rw`` or ``ro``, default ``rw``. With ``rw``, the file is created if it does not exist.
- ``verify``: ``on`` or ``off``, default ``off``. With ``on``, every read compares the events with their checksums.
- ``busy_timeout_ms``: The longest wait for the writes of other processes, in milliseconds, default 30,000.
- ``max_event_bytes``: The largest encoded event in bytes, default 64 MiB. A batch can have 16 times as many bytes.
"""

from agent_memory_log_sqlite.backend import backend
from agent_memory_log_sqlite.schema import SCHEMA_VERSION, Settings
from agent_memory_log_sqlite.store import SqliteStore
from agent_memory_log_sqlite.sync import SyncSqliteStore

__all__ = ["SCHEMA_VERSION", "Settings", "SqliteStore", "SyncSqliteStore", "backend"]
