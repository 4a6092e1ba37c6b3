"""Names the index files of subjects, and erases texts from them that were erased from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from agent_memory_log.capabilities import IndexFolder
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.steps import Steps, work

if TYPE_CHECKING:
    from agent_memory_log.memory.search.warm_index import WarmIndex

_LETTERS = 40


@cache
def index_maker() -> Callable[[Subject, IndexFolder | None], WarmIndex] | None:
    """Return the function that opens the index of a subject, in a file of the folder, or in memory for None.

    Returns None without the extra. numpy loads slowly, so it is imported on demand.
    """
    try:
        from agent_memory_log.recall.index import FORMAT, IndexFile  # noqa: PLC0415  # raises if the extra is missing
    except InvalidArgument:
        return None
    from agent_memory_log.memory.search.warm_index import WarmIndex  # noqa: PLC0415  # see above

    def make(subject: Subject, folder: IndexFolder | None) -> WarmIndex:
        if folder is None:
            return WarmIndex(subject, None)
        path = folder.path / f"{_stem(subject.agent)}-{FORMAT}.db"
        return WarmIndex(subject, IndexFile(path, _digest(subject.agent), folder.mode))

    return make


def _digest(agent: str) -> str:
    """Return a name for the subject whose stream has this agent id. It tells nothing about the subject."""
    return sha256(agent.encode("utf-8", "surrogatepass")).hexdigest()


def _stem(agent: str) -> str:
    """Return the first part of the names of a subject's index files. The format follows."""
    return _digest(agent)[:_LETTERS]


def erase_from_index(subject: Subject, folder: IndexFolder | None) -> Steps[None]:
    """Bring a subject's index file up to date, so that it has no erased text. Remove a file for which this fails.

    Raises the errors of ``Store.load_run``.
    """
    if folder is None:
        return
    files = yield from work(lambda: _files_of(folder.path, [subject.agent]))
    if not files:
        return
    make = index_maker()
    keep: Path | None = None
    if make is not None:
        index = make(subject, folder)
        yield from index.refresh(None)
        keep = yield from work(index.close)
    yield from work(lambda: _remove(file for file in files if keep is None or not file.name.startswith(keep.name)))


def erase_from_indexes(subjects: Iterable[Subject], folder: IndexFolder | None) -> Steps[None]:
    """Do ``erase_from_index`` for all subjects of a store, and remove the index files of others."""
    if folder is None:
        return
    agents: list[str] = []
    for subject in subjects:
        yield from erase_from_index(subject, folder)
        agents.append(subject.agent)
    yield from work(lambda: _remove(set(_files_of(folder.path, None)) - set(_files_of(folder.path, agents))))


def _files_of(folder: Path, agents: Iterable[str] | None) -> list[Path]:
    """Return the index files of the subjects whose streams have these agent ids. None returns all files."""
    stems = None if agents is None else {_stem(agent) for agent in agents}
    try:
        return [file for file in folder.iterdir() if stems is None or file.name[:_LETTERS] in stems]
    except OSError:
        return []  # there is no such folder


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        with suppress(OSError):  # another process removed it
            file.unlink()
