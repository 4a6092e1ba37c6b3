"""Writes output files. A file is written completely or not at all, and never replaces a file of a store."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from agent_memory_log.backend_kit.urls import without_credentials
from agent_memory_log.cli import stopping
from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.output import Output
from agent_memory_log.opening import store_files

_SQLITE = (
    b"SQLite format 3\0",
    b"\x37\x7f\x06\x82",  # a write-ahead log
    b"\x37\x7f\x06\x83",
    b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",  # a rollback journal
)
"""The first bytes of SQLite's files (https://sqlite.org/fileformat2.html)."""

_DESCRIPTORS = ("/dev/fd/", "/dev/std", "/proc/")
_STREAMS = {1: "standard output", 2: "standard error"}


def check_output(to: Path, *urls: str) -> None:
    """Raise ``UsageProblem`` if ``to`` is a file of the stores at ``urls``, or any SQLite database."""
    for url in urls:
        if any(is_same_file(to, file) for file in store_files(url)):
            raise UsageProblem(f"{to} is a file of the store {without_credentials(url)}: give another output file")
    if _is_sqlite(to):
        raise UsageProblem(f"{to} is an SQLite database: give another output file, or remove this one first")


def check_streams(url: str) -> None:
    """Raise ``UsageProblem`` if standard output or error is redirected to the store, or to any SQLite database.

    If it is standard error, it is redirected to the null device, because the message would damage the database.
    """
    for descriptor, name in _STREAMS.items():
        with suppress(OSError):  # a stream may be closed, and a file of the store may be missing
            stream = os.fstat(descriptor)
            if not stat.S_ISREG(stream.st_mode):
                continue
            in_store = any(os.path.samestat(stream, file.stat()) for file in store_files(url) if file.exists())
            if in_store or _is_sqlite(Path(f"/dev/fd/{descriptor}")):
                if name == "standard error":
                    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
                target = f"the store {without_credentials(url)}" if in_store else "an SQLite database"
                raise UsageProblem(f"{name} goes into {target}: redirect it to another file")


def is_same_file(path: Path, other: Path) -> bool:
    """Return whether two paths are the same file, also through links. Compares the real paths of a missing file."""
    try:
        return path.samefile(other)
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)


@contextmanager
def writer(to: Path | None, *urls: str) -> Generator[Callable[[bytes], object]]:
    """Yield a function that writes bytes to ``to``, or to standard output for None.

    The file appears under its name when the block ends without an error. The bytes must be JSON, because unsafe
    characters are escaped as JSON on a terminal. Raises ``UsageProblem`` as ``check_output`` does.
    """
    if to is None:
        output = Output()
        if output.stream.isatty():
            yield output.encoded
        else:
            output.flush()
            yield sys.stdout.buffer.write
            sys.stdout.buffer.flush()
        return
    check_output(to, *urls)
    if str(to.absolute()).startswith(_DESCRIPTORS) or (to.exists() and not to.is_file()):
        with to.open("ab") as stream:  # an open descriptor, a pipe or a device cannot be replaced
            yield stream.write
        return
    with replaced(to) as temporary, temporary.open("wb") as file:
        yield file.write


@contextmanager
def replaced(to: Path) -> Generator[Path]:
    """Yield an empty temporary file that replaces ``to`` when the block ends. It is removed if the block fails.

    The temporary file is in the same folder, and it is synced to disk before it replaces ``to``. A signal that ends
    the process removes it. Call ``check_output`` first. Raises ``CommandFailed`` if the file cannot be created.
    """
    target = Path(os.path.realpath(to))
    temporary = target.with_name(f".amlog-{os.urandom(8).hex()}")
    stopping.temporary_files.add(temporary)
    try:
        try:
            _create(temporary, target)
        except OSError as error:
            raise CommandFailed(f"{to}: {error.strerror}") from error
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        with suppress(OSError):
            temporary.unlink()
        stopping.temporary_files.discard(temporary)


def _create(temporary: Path, target: Path) -> None:
    """Create an empty file. It gets the permissions of ``target`` if that exists, else those of a new file."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    if target.exists():
        os.close(os.open(temporary, flags, 0o600))
        temporary.chmod(target.stat().st_mode & 0o777)
    else:
        os.close(os.open(temporary, flags, 0o666))


def _is_sqlite(path: Path) -> bool:
    """Return whether ``path`` is a file of an SQLite database."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(16).startswith(_SQLITE)
    except OSError:
        return False  # an unreadable file cannot be checked
