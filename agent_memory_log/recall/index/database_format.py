"""The format of an index's database: its tables, its facts, and the checksums of its rows."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

FORMAT: Final = 2
"""The version of the file format and of the analysis of texts. A release that changes one of them increases it."""

APPLICATION: Final = 0x616D6C69
"""SQLite's ``application_id`` of an index file: the letters ``amli``."""

SCHEMA: Final = """
CREATE TABLE facts (id INTEGER PRIMARY KEY, data BLOB, sum INTEGER);
CREATE TABLE names (id INTEGER PRIMARY KEY, data BLOB, sum INTEGER);
CREATE TABLE blocks (id INTEGER PRIMARY KEY, generation INTEGER, data BLOB, sum INTEGER);
CREATE TABLE buckets (id INTEGER PRIMARY KEY, data BLOB, sum INTEGER);
CREATE TABLE postings (id INTEGER PRIMARY KEY, data BLOB, sum INTEGER);
CREATE TABLE pooled (id INTEGER PRIMARY KEY, data BLOB, sum INTEGER);
CREATE TABLE tokens (id INTEGER PRIMARY KEY, data BLOB, sum INTEGER);
CREATE TABLE documents
    (id INTEGER PRIMARY KEY, name TEXT, session INTEGER, position INTEGER, key TEXT, data BLOB, sum INTEGER);
CREATE UNIQUE INDEX documents_by_name ON documents (name);
CREATE INDEX documents_by_place ON documents (session, position, name) WHERE session > 0;
CREATE INDEX documents_by_key ON documents (key) WHERE key > '';
CREATE TABLE marks (space TEXT, name TEXT, data BLOB, sum INTEGER, PRIMARY KEY (space, name)) WITHOUT ROWID;
"""
"""The tables. ``sum`` is the checksum of ``data`` and ``id``."""

_TABLES: Final = "SELECT count(*) FROM sqlite_master"


class IndexFile(msgspec.Struct, frozen=True):
    """The place of an index file.

    Attributes:
        path: The file. Its folder is made if it is missing.
        owner: A name of what is indexed. A file with another owner is replaced.
        mode: The file's permissions.
    """

    path: Path
    owner: str
    mode: int = 0o600


class Facts(msgspec.Struct):
    """The counts of an index, which change with each commit.

    Attributes:
        owner: See ``IndexFile``.
        generation: The number of commits.
        documents: The number of document numbers in use.
        names: The number of names.
        marks: The number of marks of each space.
        next_term: The number of the next new term.
        buckets: One bit for each bucket of terms that exists.
        model: The model of the vectors, or ``""``.
        dimension: The dimension of its vectors.
        may_hold_erased: True if the file or its write-ahead log may still hold removed rows.
    """

    owner: str = ""
    generation: int = 0
    documents: int = 0
    names: int = 0
    marks: dict[str, int] = {}
    next_term: int = 0
    buckets: bytes = bytes(512)
    model: str = ""
    dimension: int = 0
    may_hold_erased: bool = False


read_facts = msgspec.msgpack.Decoder(Facts).decode


class Damaged(Exception):  # the database turns it into IndexLost
    """The database holds something that this module did not write."""


def checked(number: int, data: object, total: object) -> bytes:
    """Return the data of a row. Raises an error of ``damaged`` if its checksum is wrong."""
    if not isinstance(data, bytes) or crc32(data, number & 0xFFFFFFFF) != total:
        raise Damaged(f"the checksum of row {number} is wrong")
    return data


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files that SQLite may keep for an index: the database, its write-ahead log and the log's index."""
    return path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))


def read_row(connection: sqlite3.Connection, table: str, number: int) -> bytes:
    """Return the data of a row that has to exist."""
    data = find_row(connection, table, number)
    if data is None:
        raise Damaged(f"row {number} of {table} is missing")
    return data


def find_row(connection: sqlite3.Connection, table: str, number: int) -> bytes | None:
    """Return the data of a row, or None if it does not exist."""
    row = connection.execute(f"SELECT data, sum FROM {table} WHERE id = ?", (number,)).fetchone()  # noqa: S608  # a constant
    return None if row is None else checked(number, *row)


def write_row(connection: sqlite3.Connection, table: str, number: int, data: bytes) -> None:
    """Add or replace a row."""
    connection.execute(
        f"INSERT INTO {table} (id, data, sum) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET data = excluded.data, sum = excluded.sum",  # noqa: E501, S608  # a constant
        (number, data, crc32(data, number & 0xFFFFFFFF)),
    )


def create_tables(connection: sqlite3.Connection, owner: str) -> None:
    """Create the tables in a new file."""
    if connection.execute(_TABLES).fetchone() != (0,):
        return
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute(_TABLES).fetchone() == (0,):  # again, because another process may have created them
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        for statement in SCHEMA.split(";"):
            connection.execute(statement)
        write_row(connection, "facts", 1, msgspec.msgpack.encode(Facts(owner)))
    connection.execute("COMMIT")


def place_of(path: Path) -> tuple[int, int] | None:
    """Return the device and the inode of a file, or None if it does not exist."""
    try:
        file = os.stat(path)  # noqa: PTH116  # a Path takes twice as long
    except OSError:
        return None
    return file.st_dev, file.st_ino
