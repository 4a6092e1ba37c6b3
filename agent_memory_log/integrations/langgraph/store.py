"""The store for LangGraph's long-term memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import chain

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)
from langgraph.store.memory import InMemoryStore

from agent_memory_log import SyncStore, new_event
from agent_memory_log.integrations.langgraph.encoding import Encoder
from agent_memory_log.integrations.langgraph.items import (
    AGENT,
    Items,
    KeptVectors,
    Namespace,
    digest,
    meta,
    packed,
    run_id,
)
from agent_memory_log.integrations.langgraph.payloads import ItemPut, ItemsRead
from agent_memory_log.integrations.opening import StoreOwner
from agent_memory_log.integrations.threads import in_thread

_LARGEST_JSON = 1 << 20
"""The largest value, in bytes, that is stored as JSON. A larger one is compressed."""


class MemoryLogStore(BaseStore, StoreOwner):
    """A LangGraph store that keeps items in a log of this library, with every earlier value of an item.

        graph = builder.compile(store=MemoryLogStore("sqlite:///runs.db"))

    It may be used by any number of threads, event loops and processes. A process holds the namespaces that it has read
    in memory. ``delete`` erases an item with its earlier values.

    Args:
        store: The URL of a store, which ``close`` closes, or an open store.
        index: The search for a ``query``: LangGraph's ``IndexConfig``. With ``embed``, items are ranked by their
            vectors, which are stored, so that no text is embedded twice. Without it, they are ranked by their words,
            with this library's recall (the extra ``recall``). The default has no ranking.
        ttl: The lifetimes of items: LangGraph's ``TTLConfig``. Expired items are never returned; ``sweep_ttl`` erases
            them. ``omit_expired`` and ``sweep_interval_minutes`` have no effect.

    Raises:
        InvalidArgument: ``store`` is neither a URL nor an open ``SyncStore``, or the extra ``recall`` is not installed
            and ``index`` has no ``embed``.
    """

    supports_ttl = True

    def __init__(
        self, store: str | SyncStore, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None
    ) -> None:
        StoreOwner.__init__(self, store)
        self.ttl_config = ttl
        self.index_config = index
        self._items = Items(self.store, index)
        self._lock = threading.RLock()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations. Reads see the store before the writes of the batch. See ``BaseStore.batch``."""
        operations = _checked(ops)
        texts, questions = self._to_embed(operations)
        if self._items.embed is None:
            return self._carry_out(operations, texts, {})
        embedder = KeptVectors(self._items.embed)
        embedder.embed_documents([*chain.from_iterable(texts.values())])
        for question in questions:
            embedder.embed_query(question)
        return self._carry_out(operations, texts, embedder.vectors)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do ``batch`` in a thread, and embed texts in the event loop."""
        operations = _checked(ops)
        texts, questions = self._to_embed(operations)
        if self._items.embed is None:
            return await in_thread(partial(self._carry_out, operations, texts, {}))
        embedder = KeptVectors(self._items.embed)
        await embedder.aembed_documents([*chain.from_iterable(texts.values())])
        for question in questions:
            await embedder.aembed_query(question)
        return await in_thread(partial(self._carry_out, operations, texts, embedder.vectors))

    def sweep_ttl(self) -> int:
        """Erase the items that have expired, in all namespaces, and return how many they were."""
        with self._lock:
            self._items.find_new()
            self._items.refresh(())
            expired = self._items.expired()
            for namespace, keys in expired.items():
                self._erase(namespace, keys)
            return sum(map(len, expired.values()))

    def _to_embed(self, operations: list[Op]) -> tuple[dict[int, list[str]], list[str]]:
        """Return the texts of each put by its position, and the questions."""
        texts = {
            number: self._items.texts(operation)
            for number, operation in enumerate(operations)
            if isinstance(operation, PutOp) and operation.value is not None and self._items.embed is not None
        }
        searches = [operation for operation in operations if isinstance(operation, SearchOp)]
        return texts, [operation.query for operation in searches if operation.query]

    def _carry_out(
        self, operations: list[Op], texts: Mapping[int, list[str]], vectors: dict[str, list[float]]
    ) -> list[Result]:
        with self._lock:
            if self._items.embedder is not None:
                self._items.embedder.vectors = dict(vectors)
            self._refresh(operations)
            results = [self._read(operation) for operation in operations]
            self._renew(operations, results)
            puts = {
                (operation.namespace, operation.key): (operation, texts.get(number, []))
                for number, operation in enumerate(operations)
                if isinstance(operation, PutOp)
            }
            self._write(list(puts.values()), vectors)
            return results

    def _refresh(self, operations: list[Op]) -> None:
        if any(isinstance(operation, SearchOp | ListNamespacesOp) for operation in operations):
            self._items.find_new()
        prefixes: set[Namespace] = set()
        names: set[Namespace] = set()
        for operation in operations:
            if isinstance(operation, GetOp | PutOp):
                names.add(operation.namespace)
            else:
                prefixes.add(operation.namespace_prefix if isinstance(operation, SearchOp) else ())
        for namespace in names:
            self._items.read(namespace)
        for prefix in prefixes:
            self._items.refresh(prefix)
        self._items.forget_expired()

    def _read(self, operation: Op) -> Result:
        if isinstance(operation, PutOp):
            return None
        if isinstance(operation, ListNamespacesOp):
            names = InMemoryStore()
            names.batch([PutOp(namespace, "", {}) for namespace in self._items.namespaces(())])
            return names.batch([operation])[0]
        if isinstance(operation, SearchOp):
            return self._items.search(operation)
        return self._items.view.batch([operation])[0]

    def _renew(self, operations: list[Op], results: list[Result]) -> None:
        """Begin the lifetimes of items again that were read."""
        renewed: dict[Namespace, list[str]] = {}
        for operation, result in zip(operations, results, strict=True):
            if isinstance(operation, GetOp | SearchOp) and operation.refresh_ttl:
                for item in result if isinstance(result, list) else [result]:
                    if isinstance(item, Item) and self._items.has_lifetime(item.namespace, item.key):
                        renewed.setdefault(item.namespace, []).append(item.key)
        for namespace, keys in renewed.items():
            self.store.append_events(
                AGENT, run_id(namespace), new_event(ItemsRead(tuple(dict.fromkeys(keys))), timestamp=self._items.now())
            )
            self._items.read(namespace)

    def _write(self, puts: list[tuple[PutOp, list[str]]], vectors: Mapping[str, list[float]]) -> None:
        for namespace in dict.fromkeys(put.namespace for put, _ in puts):
            group = [(put, texts) for put, texts in puts if put.namespace == namespace]
            self._erase(namespace, [put.key for put, _ in group if put.value is None])
            time = self._items.now()
            events = [
                new_event(
                    _payload(put, {digest(text): packed(vectors[digest(text)]) for text in texts}), timestamp=time
                )
                for put, texts in group
                if put.value is not None
            ]
            if events:
                self.store.append_events(AGENT, run_id(namespace), *events, meta=meta(namespace))
                self._items.read(namespace)

    def _erase(self, namespace: Namespace, keys: Iterable[str]) -> None:
        seqs = [seq for key in keys for seq in self._items.seqs(namespace, key)]
        if seqs:
            self.store.redact_events(AGENT, run_id(namespace), seqs, reason="deleted")
            self._items.read(namespace)


def _checked(ops: Iterable[Op]) -> list[Op]:
    """Check the namespaces of operations, and make tuples of them, for callers pass lists too."""
    operations: list[Op] = []
    for operation in ops:
        validate_op_namespace(operation)
        if isinstance(operation, SearchOp):
            operations.append(operation._replace(namespace_prefix=tuple(operation.namespace_prefix)))
        elif isinstance(operation, ListNamespacesOp):
            operations.append(operation)
        else:
            operations.append(operation._replace(namespace=tuple(operation.namespace)))
    return operations


def _payload(put: PutOp, vectors: Mapping[str, bytes]) -> ItemPut:
    value = Encoder(JsonPlusSerializer()).leaf(dict(put.value or {}), most=_LARGEST_JSON)
    index = () if put.index is False else None if put.index is None else tuple(put.index)
    return ItemPut(put.key, value, index, put.ttl, vectors)
