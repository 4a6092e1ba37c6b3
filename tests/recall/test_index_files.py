"""Tests of indexes in files: they equal indexes in memory, are shared by handles, and survive damage."""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_memory_log.recall import Document, DocumentHit, Embeddings, IndexFile, IndexLost, RecallIndex
from agent_memory_log.recall.embedding import unit
from agent_memory_log.recall.index.database_format import FORMAT, files_of
from tests.effort import IS_CAMPAIGN
from tests.recall.test_index import _BROAD_QUERY, _DOCUMENTS, _TEXTS, NOW, index_of, talk

OWNER = "somebody"


def search(index: RecallIndex, query: str, embedded: Embeddings | None = None) -> list[DocumentHit]:
    return index.search(query, now=NOW, top_k=5, boost_preferences={"tea"}, embedded=embedded)


def vectors_of(seed: int) -> Embeddings:
    generator = np.random.default_rng(seed)
    tokens = unit(generator.standard_normal((3, 8)).astype(np.float32)) if seed % 2 else None
    pooled = unit(generator.standard_normal((1, 8)).astype(np.float32))
    return Embeddings(pooled, None if tokens is None else (tokens,))


class FileMachine(RuleBasedStateMachine):
    """Two handles of one file return the hits of an index in memory, after any changes through either of them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.file = IndexFile(self.folder / "folder" / "index.db", OWNER)
        self.memory = RecallIndex()
        self.handles = [RecallIndex(self.file), RecallIndex(self.file)]

    def teardown(self) -> None:
        for handle in self.handles:
            handle.close()
        shutil.rmtree(self.folder)

    @rule(document=_DOCUMENTS, at=st.integers(0, 1), keep=st.booleans())
    def add(self, document: Document, at: int, keep: bool) -> None:
        for index in (self.memory, self.handles[at]):
            index.add(document, keep_vectors=keep)

    @rule(documents=st.lists(_DOCUMENTS, max_size=5), removed=st.integers(0, 12).map(str), at=st.integers(0, 1))
    def add_several(self, documents: list[Document], removed: str, at: int) -> None:
        for index in (self.memory, self.handles[at]):
            with index.changing():
                for document in documents:
                    index.add(document)
                index.remove(removed)
                index.marks.put("seen", removed, b"yes")

    @rule(name=st.integers(0, 12).map(str), at=st.integers(0, 1))
    def remove(self, name: str, at: int) -> None:
        for index in (self.memory, self.handles[at]):
            index.remove(name)

    @rule(name=st.integers(0, 12).map(str), seed=st.integers(0, 9), model=st.sampled_from("ab"), at=st.integers(0, 1))
    def put_vectors(self, name: str, seed: int, model: str, at: int) -> None:
        for index in (self.memory, self.handles[at]):
            index.use_model(model, 8)
            index.put_vectors([name], vectors_of(seed))

    @rule(document=_DOCUMENTS, at=st.integers(0, 1))
    def fail(self, document: Document, at: int) -> None:
        index = self.handles[at]
        with suppress(KeyError), index.changing():
            index.remove(document.id)
            index.add(document)
            raise KeyError

    @rule(at=st.integers(0, 1))
    def reopen(self, at: int) -> None:
        self.handles[at].close()
        self.handles[at] = RecallIndex(self.file)

    @rule(at=st.integers(0, 1))
    def scrub(self, at: int) -> None:
        with self.handles[at].reading():
            pass
        self.handles[at].scrub()

    @rule(at=st.integers(0, 1))
    def clear(self, at: int) -> None:
        for index in (self.memory, self.handles[at]):
            index.clear()

    @rule(query=_TEXTS, at=st.integers(0, 1))
    def search(self, query: str, at: int) -> None:
        assert search(self.handles[at], query) == search(self.memory, query)

    @invariant()
    def equals_an_index_in_memory(self) -> None:
        expected = search(self.memory, _BROAD_QUERY)
        for index in self.handles:
            assert search(index, _BROAD_QUERY) == expected
            with index.reading():
                assert (len(index), index.model) == (len(self.memory), self.memory.model)
                assert index.marks.of("seen") == self.memory.marks.of("seen")
                assert {name for name, _ in index.without_vectors(99)} == {
                    name for name, _ in self.memory.without_vectors(99)
                }
        if self.memory.model[1]:
            question = vectors_of(3)
            expected = search(self.memory, _BROAD_QUERY, question)
            for index in self.handles:
                hits = search(index, _BROAD_QUERY, question)
                assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-5)


TestFileMachine = FileMachine.TestCase
TestFileMachine.settings = settings(stateful_step_count=20)


@pytest.fixture
def file(tmp_path: Path) -> IndexFile:
    return IndexFile(tmp_path / "index" / "some.db", OWNER)


def _words(number: int) -> str:
    return " ".join(("secretword", *(f"unseen{number}x{at}" for at in range(8))))


def _bytes_of(file: IndexFile) -> bytes:
    return b"".join(path.read_bytes() for path in file.path.parent.iterdir())


def test_the_files_hold_no_part_of_a_removed_document(file: IndexFile) -> None:
    index, other = RecallIndex(file), RecallIndex(file)
    index.use_model("m", 8)
    pooled = vectors_of(1)
    for number in range(300):
        speaker = f"Speaker{number}" if number % 2 else "Mara"
        with index.changing():
            note, session = f"note {_words(number)}".encode(), f"session{number}"
            index.add(Document(id=f"id{number}", text=_words(number), note=note, session=session, speaker=speaker))
            index.put_vectors([f"id{number}"], pooled)
            index.marks.put("space", f"mark{number}", b"secretmark")
    vector = pooled.pooled[0].tobytes()
    assert all(text in _bytes_of(file) for text in (b"unseen7x3", b"secretword", b"Speaker7", b"secretmark", vector))
    assert search(other, "secretword")
    with index.changing():
        for number in range(300):
            index.remove(f"id{number}")
            index.marks.remove("space", f"mark{number}")
    assert index.may_hold_erased
    index.scrub()
    assert not index.may_hold_erased
    content = _bytes_of(file)
    for text in (b"unsee", b"secretw", b"Speaker", b"secretmark", b"mark7", b"id7", b"session7", b"Mara", vector):
        assert text not in content
    assert search(other, "secretword") == []


@pytest.mark.parametrize("seed", range(5))  # without VACUUM, seed 1 leaves a word in a page of SQLite 3.40
def test_removed_words_are_erased_although_their_rows_moved_between_pages(file: IndexFile, seed: int) -> None:
    index, chance, present = RecallIndex(file), random.Random(seed), list[int]()
    for first in range(0, 600, 10):
        with index.changing():
            for number in range(first, first + 10):
                index.add(Document(id=f"id{number}", text=f"secret{number}x {'word ' * chance.randrange(60)}"))
                present.append(number)
        with index.changing():
            for _ in range(6):
                index.remove(f"id{present.pop(chance.randrange(len(present)))}")
    index.scrub()
    index.close()
    assert set(re.findall(rb"secret\d+x", _bytes_of(file))) == {f"secret{number}x".encode() for number in present}


def test_words_that_a_reader_keeps_in_the_log_are_erased_by_the_next_scrub(file: IndexFile) -> None:
    index, reader = RecallIndex(file), RecallIndex(file)
    index.add(Document(id="1", text="secretword"))
    with reader.reading():
        index.remove("1")
        index._database.execute("PRAGMA busy_timeout = 10")
        index.scrub()
        assert b"secretword" in _bytes_of(file)
    index.close()
    later = RecallIndex(file)
    assert later.may_hold_erased
    later.scrub()
    assert b"secretword" not in _bytes_of(file)


def _filled(file: IndexFile) -> list[DocumentHit]:
    index = RecallIndex(file)
    with index.changing():
        for document in talk(*((f"Speaker{at % 7}", f"order {at} ships on March {at % 28}") for at in range(1500))):
            index.add(document)
    hits = search(index, "When did order 77 ship?")
    index.close()
    return hits


def _damages(path: Path, seed: int) -> None:
    generator = random.Random(seed)
    data = bytearray(path.read_bytes())
    kind = seed % 4
    if kind == 0:
        for _ in range(40):
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    elif kind == 1:
        del data[generator.randrange(len(data)) :]
    elif kind == 2:
        begin = generator.randrange(len(data) // 4096) * 4096
        data[begin : begin + 4096] = bytes(4096)
    else:
        first, second = (generator.randrange(1, len(data) // 4096) * 4096 for _ in range(2))
        data[first : first + 4096] = data[second : second + 4096]
    path.write_bytes(data)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[DocumentHit]]:
    """Return the content of a file from ``_filled``, and its hits."""
    file = IndexFile(tmp_path_factory.mktemp("filled") / "index" / "some.db", OWNER)
    hits = _filled(file)
    return file.path.read_bytes(), hits


@pytest.mark.parametrize("seed", range(60 if IS_CAMPAIGN else 20))
def test_a_damaged_file_gives_the_right_hits_or_none(
    file: IndexFile, filled: tuple[bytes, list[DocumentHit]], seed: int
) -> None:
    content, expected = filled
    file.path.parent.mkdir()
    file.path.write_bytes(content)
    _damages(file.path, seed)
    index = RecallIndex(file)
    with suppress(IndexLost):
        hits = search(index, "When did order 77 ship?")
        if hits or len(index):
            assert hits == expected
            return
    assert len(index) == 0
    index.close()
    assert _filled(file) == expected, "the index can be filled again"


@pytest.mark.parametrize("content", [b"", b"not a database" * 1000, b"SQLite format 3\0" + bytes(4080)])
def test_a_foreign_file_is_replaced(file: IndexFile, content: bytes) -> None:
    file.path.parent.mkdir()
    file.path.write_bytes(content)
    _filled(file)
    assert search(RecallIndex(file), "order")


def test_the_index_of_another_owner_or_program_or_format_is_replaced(file: IndexFile) -> None:
    _filled(file)
    other = RecallIndex(IndexFile(file.path, "somebody else"))
    assert (len(other), search(other, "order")) == (0, [])
    other.add(Document(id="1", text="order"))
    other.close()
    for pragma in (f"user_version = {FORMAT + 1}", "application_id = 7"):
        connection = sqlite3.connect(file.path)
        connection.execute(f"PRAGMA {pragma}")
        connection.close()
        index = RecallIndex(IndexFile(file.path, "somebody else"))
        assert search(index, "order") == []
        index.add(Document(id="1", text="order"))
        index.close()


def test_files_may_be_removed_while_they_are_open(file: IndexFile) -> None:
    index = RecallIndex(file)
    index.add(Document(id="1", text="order"))
    shutil.rmtree(file.path.parent)
    with pytest.raises(IndexLost):
        search(index, "order")
    assert search(index, "order") == []
    index.add(Document(id="1", text="order"))
    assert search(RecallIndex(file), "order"), "the index is in a new file"


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_an_index_in_a_folder_that_cannot_be_written_is_in_memory(file: IndexFile) -> None:
    file.path.parent.parent.chmod(0o500)
    index = RecallIndex(file)
    index.add(Document(id="1", text="order"))
    assert (index.file, len(search(index, "order"))) == (None, 1)


def test_an_index_whose_folder_is_a_file_is_in_memory(file: IndexFile) -> None:
    file.path.parent.write_text("taken")
    index = RecallIndex(file)
    index.add(Document(id="1", text="order"))
    assert (index.file, len(search(index, "order"))) == (None, 1)


def test_an_index_never_follows_a_symlink(file: IndexFile, tmp_path: Path) -> None:
    target = tmp_path / "target.db"
    target.write_bytes(b"precious")
    file.path.parent.mkdir()
    file.path.symlink_to(target)
    index = RecallIndex(file)
    index.add(Document(id="1", text="order"))
    assert target.read_bytes() == b"precious"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_files_have_the_permissions_that_were_asked_for(tmp_path: Path, mode: int) -> None:
    file = IndexFile(tmp_path / "index" / "some.db", OWNER, mode)
    index = RecallIndex(file)
    index.add(Document(id="1", text="order"))
    assert {path.stat().st_mode & 0o777 for path in files_of(file.path) if path.exists()} == {mode}
    assert file.path.parent.stat().st_mode & 0o777 & ~(mode | (mode & 0o444) >> 2) == 0


def test_a_failed_change_leaves_the_file_as_it_was(file: IndexFile) -> None:
    index = RecallIndex(file)
    index.add(Document(id="1", text="order"))
    with suppress(KeyError), index.changing():
        index.remove("1")
        raise KeyError
    assert [hit.id for hit in search(index, "order")] == ["1"]
    assert index_of(Document(id="1", text="order")).search("order", now=NOW)
