"""The items of a LangGraph store, as a process holds them: the runs of its namespaces, folded into an InMemoryStore."""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, cast

import msgspec
from langchain_core.embeddings import Embeddings
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import IndexConfig, PutOp, SearchItem, SearchOp, ensure_embeddings
from langgraph.store.memory import InMemoryStore

from agent_memory_log import Event, SyncStore
from agent_memory_log.integrations.langgraph.encoding import Decoder
from agent_memory_log.integrations.langgraph.payloads import ItemPut, ItemsRead
from agent_memory_log.integrations.names import joined_id

if TYPE_CHECKING:
    from agent_memory_log.integrations.langgraph.words import Words  # needs the extra ``recall``

AGENT = "langgraph-store"
"""The agent whose runs hold the items, one run for each namespace."""

Namespace = tuple[str, ...]


class _Texts(Embeddings):
    """Collects the texts that a store wants to embed."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.texts += texts
        return [[] for _ in texts]

    def embed_query(self, text: str) -> list[float]:  # noqa: ARG002  # only documents are collected
        return []


class KeptVectors(Embeddings):
    """Embeddings that keep each vector, so that a text is embedded only once.

    Args:
        embed: The embeddings that make new vectors.

    Attributes:
        vectors: The vectors by the SHA-256 of their texts.
    """

    def __init__(self, embed: Embeddings) -> None:
        self._embed = embed
        self.vectors: dict[str, list[float]] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts."""
        new = self._new(texts)
        self._keep(new, self._embed.embed_documents(new) if new else [])
        return [self.vectors[digest(text)] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a question."""
        if (key := digest("?" + text)) not in self.vectors:
            self.vectors[key] = _rounded(self._embed.embed_query(text))
        return self.vectors[key]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Do ``embed_documents`` without blocking the event loop."""
        new = self._new(texts)
        self._keep(new, await self._embed.aembed_documents(new) if new else [])
        return [self.vectors[digest(text)] for text in texts]

    async def aembed_query(self, text: str) -> list[float]:
        """Do ``embed_query`` without blocking the event loop."""
        if (key := digest("?" + text)) not in self.vectors:
            self.vectors[key] = _rounded(await self._embed.aembed_query(text))
        return self.vectors[key]

    def _new(self, texts: Sequence[str]) -> list[str]:
        return [text for text in dict.fromkeys(texts) if digest(text) not in self.vectors]

    def _keep(self, texts: Iterable[str], vectors: Iterable[Sequence[float]]) -> None:
        self.vectors.update(zip(map(digest, texts), map(_rounded, vectors), strict=True))


def digest(text: str) -> str:
    """Return the key of a text's vector."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def packed(vector: Sequence[float]) -> bytes:
    """Return a vector as 32-bit numbers, little end first."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _unpacked(data: bytes) -> list[float]:
    numbers = array("f", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _rounded(vector: Sequence[float]) -> list[float]:
    """Return a vector as it comes back from the log, so that scores do not depend on who embedded the text."""
    return array("f", vector).tolist()


class _Run(msgspec.Struct):
    """A namespace of the store.

    Attributes:
        version: The run's version up to which it was folded.
        first_seq: The run's first seq then.
        seqs: The seqs of the events of each live key.
        created: When each key was put first.
        expiries: The lifetime of each key that has one, and its end.
    """

    version: int = 0
    first_seq: int = 1
    seqs: dict[str, list[int]] = {}
    created: dict[str, datetime] = {}
    expiries: dict[str, tuple[timedelta, datetime]] = {}

    def fold_put(self, data: ItemPut, event: Event) -> None:
        """Take in that an item was put."""
        _, end = self.expiries.pop(data.key, (None, None))
        if end is not None and end <= event.timestamp:
            self.created.pop(data.key, None)
        self.created.setdefault(data.key, event.timestamp)
        self.seqs.setdefault(data.key, []).append(event.seq)
        if data.ttl is not None:
            lifetime = timedelta(minutes=data.ttl)
            self.expiries[data.key] = (lifetime, event.timestamp + lifetime)


class Items:
    """The items of the namespaces that this process has read. Not safe for several threads.

    Args:
        store: The store.
        index: The configuration of the search by vectors, or None.

    Attributes:
        view: The items.
        embed: The embeddings of ``index``, or None.
        embedder: The embeddings that ``view`` uses, or None.
    """

    def __init__(self, store: SyncStore, index: IndexConfig | None) -> None:
        self._store = store
        self._runs: dict[Namespace, _Run] = {}
        self._listed: set[str] = set()
        self._index = index
        embed = None if index is None else index.get("embed")
        self.embed = None if embed is None else ensure_embeddings(embed)
        self.embedder = None if self.embed is None else KeptVectors(self.embed)
        self._words = None if index is None or self.embed is not None else _new_words()
        self.view = self._empty(self.embedder)

    def _empty(self, embed: Embeddings | None) -> InMemoryStore:
        if self._index is None or embed is None:
            return InMemoryStore()
        return InMemoryStore(index={**self._index, "embed": embed})

    def texts(self, operation: PutOp) -> list[str]:
        """Return the texts of an item that are searched."""
        texts = _Texts()
        if self._index is not None:
            self._empty(texts).batch([operation])
        return texts.texts

    def search(self, operation: SearchOp) -> list[SearchItem]:
        """Return the items that a search finds: by vectors, by words, or by its filter alone."""
        if self._words is None or not operation.query:
            return cast("list[SearchItem]", self.view.batch([operation])[0])
        everything = operation._replace(query=None, offset=0, limit=sys.maxsize)
        items = cast("list[SearchItem]", self.view.batch([everything])[0])
        end = operation.offset + operation.limit
        return self._words.search(operation.query, items, self.now())[operation.offset : end]

    @staticmethod
    def now() -> datetime:
        """Return the current time."""
        return datetime.now(UTC)

    def namespaces(self, prefix: Namespace) -> list[Namespace]:
        """Return the namespaces below a prefix that hold items."""
        return [name for name, run in self._runs.items() if run.seqs and name[: len(prefix)] == prefix]

    def keys(self, namespace: Namespace) -> Iterable[str]:
        """Return the keys of a namespace."""
        return self._runs[namespace].seqs if namespace in self._runs else ()

    def seqs(self, namespace: Namespace, key: str) -> list[int]:
        """Return the seqs of the events of an item."""
        return self._runs[namespace].seqs.get(key, []) if namespace in self._runs else []

    def has_lifetime(self, namespace: Namespace, key: str) -> bool:
        """Return whether an item expires some time."""
        return namespace in self._runs and key in self._runs[namespace].expiries

    def expired(self) -> dict[Namespace, list[str]]:
        """Return the keys of the items that have expired, by namespace."""
        now = self.now()
        return {
            namespace: keys
            for namespace, run in self._runs.items()
            if (keys := [key for key, (_, end) in run.expiries.items() if end <= now])
        }

    def find_new(self) -> None:
        """Look for new namespaces. Runs are listed from the newest on, up to the first that is known."""
        cursor = None
        while True:
            page = self._store.list_runs(AGENT, limit=500, cursor=cursor)
            for run in page.runs:
                if run.run in self._listed:
                    return
                self._runs.setdefault(tuple(cast("list[str]", run.meta["namespace"])), _Run())
            self._listed |= {run.run for run in page.runs}
            cursor = page.cursor
            if cursor is None:
                return

    def refresh(self, prefix: Namespace) -> None:
        """Read what other processes changed in all namespaces below a prefix."""
        names = [name for name in self._runs if name[: len(prefix)] == prefix]
        heads = self._store.peek_runs([(AGENT, run_id(name)) for name in names])
        for name, head in zip(names, heads, strict=True):
            run = self._runs[name]
            if head is None or (head.version, head.first_seq) != (run.version, run.first_seq):
                self.read(name)

    def read(self, namespace: Namespace) -> None:
        """Read what changed in a namespace, or all of it if something was erased."""
        run = self._runs.setdefault(namespace, _Run())
        snapshot = self._store.load_run(AGENT, run_id(namespace), after=run.version)
        if snapshot.redactions or snapshot.first_seq != run.first_seq:
            self._remove(namespace, run.seqs)
            run = self._runs[namespace] = _Run()
            snapshot = self._store.load_run(AGENT, run_id(namespace))
        for event in snapshot.log:
            self._fold(namespace, run, event)
        run.version, run.first_seq = snapshot.version, snapshot.first_seq

    def forget_expired(self) -> None:
        """Leave out the items that have expired."""
        for namespace, keys in self.expired().items():
            self._remove(namespace, keys)

    def _remove(self, namespace: Namespace, keys: Iterable[str]) -> None:
        for key in keys:
            self.view.batch([PutOp(namespace, key, None)])
            if self._words is not None:
                self._words.remove(namespace, key)

    def _fold(self, namespace: Namespace, run: _Run, event: Event) -> None:
        data = event.data
        if isinstance(data, ItemsRead):
            for key in data.keys & run.expiries.keys():
                lifetime, end = run.expiries[key]
                if event.timestamp < end:
                    run.expiries[key] = (lifetime, event.timestamp + lifetime)
        elif isinstance(data, ItemPut):
            run.fold_put(data, event)
            value = Decoder(JsonPlusSerializer()).value(data.value)
            index: Literal[False] | list[str] | None = None if data.index is None else list(data.index) or False
            put = PutOp(namespace, data.key, value, index)
            if self.embedder is not None:
                self.embedder.vectors.update((key, _unpacked(vector)) for key, vector in data.vectors.items())
            self.view.batch([put])
            if self.embedder is not None:
                self.embedder.vectors = {
                    key: self.embedder.vectors[key] for key in self.embedder.vectors.keys() - data.vectors
                }
            if self._words is not None:
                self._words.put(namespace, data.key, self.texts(put), event.timestamp)
            item = self.view.get(namespace, data.key)
            if item is not None:
                item.created_at = run.created[data.key]
                item.updated_at = event.timestamp


def _new_words() -> Words:
    """Return an empty index. Raises ``InvalidArgument`` without the extra ``recall``."""
    from agent_memory_log.integrations.langgraph.words import Words  # noqa: PLC0415  # it may not be installed

    return Words()


def run_id(namespace: Namespace) -> str:
    """Return the id of the run that holds a namespace."""
    return joined_id("items", *namespace)


def meta(namespace: Namespace) -> Mapping[str, list[str]]:
    """Return the meta of the run that holds a namespace."""
    return {"namespace": list(namespace)}
