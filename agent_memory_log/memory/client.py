"""The memory client, which an application opens on a store, or on the store of its configuration.

``python -m tools.sync_twin`` generates ``sync.py`` from this file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from agent_memory_log.capabilities import KeepsIndexes
from agent_memory_log.errors import AgentMemoryLogError, InvalidArgument, StoreClosed
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.calls import MemoryCalls
from agent_memory_log.memory.configuration import ClientSettings, read_settings
from agent_memory_log.memory.execution import execute
from agent_memory_log.memory.learning.writing import store_uses
from agent_memory_log.memory.policy.rules import check_limit
from agent_memory_log.memory.policy.secrets import stop_secrets
from agent_memory_log.memory.records.arguments import Operation, Result
from agent_memory_log.memory.records.principals import Principal, SubjectId
from agent_memory_log.memory.records.protocols import (
    Clock,
    Execution,
    Extractor,
    Merger,
    OpenExecution,
    OpenPolicy,
    Policy,
    Redactor,
    Reranker,
    ServesMemory,
    utc_now,
)
from agent_memory_log.memory.records.quotas import NO_QUOTAS, Quotas
from agent_memory_log.memory.stream.context import INDEX_BYTES, Context, Hooks, Served, WarmIndexes, WarmSubjects
from agent_memory_log.memory.stream.subjects import list_subjects
from agent_memory_log.models.tokens import CountTokens
from agent_memory_log.steps import require_store, run_async
from agent_memory_log.store import Store

if TYPE_CHECKING:
    from agent_memory_log.recall import Embedder  # needs the extra ``recall``


_DEFAULT_HOOKS = Hooks(OpenPolicy(), OpenExecution(), stop_secrets, None, 1_000, utc_now)


class LazyStore:
    """The store of a client: an open one that was passed in, or one that is opened at the first call."""

    def __init__(self, source: Store | ClientSettings, indexes: WarmIndexes) -> None:
        self._source = source
        self._indexes = indexes
        self._opened: Store | None = None
        self._is_closed = False
        self._locks: dict[int, asyncio.Lock] = {}
        if not isinstance(source, ClientSettings):
            self._use_indexes(source)

    def _use_indexes(self, store: Store) -> None:
        self._indexes.folder = store.index_folder if isinstance(store, KeepsIndexes) else None

    def _lock(self) -> asyncio.Lock:
        # A fork may copy a lock that another thread holds, so each process has its own.
        return self._locks.setdefault(os.getpid(), asyncio.Lock())

    async def get(self) -> Store:
        """Return the open store. Raises the errors of ``open_store``, and ``StoreClosed`` after ``aclose``."""
        if not isinstance(self._source, ClientSettings):
            return self._source
        if self._opened is None:
            from agent_memory_log.opening import open_store  # noqa: PLC0415  # only this client needs it

            async with self._lock():
                if self._is_closed:
                    raise StoreClosed("this memory client is closed: make a new one")
                if self._opened is None:
                    store = await open_store(self._source.store_url())
                    self._use_indexes(store)
                    self._opened = store
        return self._opened

    async def aclose(self) -> None:
        """Close the store if it was opened here. A client whose store was never opened cannot open it any more."""
        async with self._lock():
            self._is_closed = True
            if self._opened is not None:
                await self._opened.aclose()


class Memory(MemoryCalls):
    """The memory that one principal may reach.

    Without a ``scope``, ``remember`` and the calls with a key use the principal's home scope. Without ``scopes``, the
    other calls use every scope that execution allows.

    Every call raises the errors of the store, and ``InvalidArgument`` with the name of an invalid argument. A call that
    reads raises ``MemoryStopped`` with the reason ``scope_denied:<scope>`` if the scope is denied or not the
    principal's.
    """

    def __init__(self, store: LazyStore, principal: Principal, context: Context | Served) -> None:
        """Use ``MemoryClient.of`` instead of this constructor."""
        self._store = store
        self._principal = principal
        self._context = context

    @property
    def principal(self) -> Principal:
        """The principal that this memory belongs to."""
        return self._principal

    async def execute(self, operation: Operation[Result]) -> Result:
        """Carry out an operation, as the method with its name does."""
        return await run_async(execute(operation, self._context), await self._store.get())


class MemoryClient(MemoryCalls):
    """Opens memory in a store. Any number of clients may use the same store.

    Without a store, the client opens one at its first call: a file in the user's data folder, or the file or server
    that ``config`` or environment variables name. It also has the methods of ``Memory``, for the tenant and user of
    its configuration. ``aclose`` closes the store.

        async with MemoryClient() as me:
            await me.remember(key="language", value="english")

    With a store, the client has no principal, so that a server cannot mix up its users. The caller closes the store.

        memory = MemoryClient(store)
        me = memory.of(Principal(tenant="acme", scopes={"user": "42"}))
        await me.remember(key="language", value="english")

    A client caches the state of the subjects that it used recently. If the store is on a server, which carries out the
    operations, the arguments after ``config`` are configured there, except ``embedder``.

    Args:
        store: The store that holds the runs and the memory. Default: the store of ``config``.
        config: Keys and values of ``ClientSettings``, such as ``{"mode": "remote", "base_url": "https://…"}``. Missing
            keys come from environment variables, such as ``AMLOG_MODE`` and ``AMLOG_BASE_URL``.
        policy: Decides which memories an application may write. Default: all.
        execution: Decides which memories and scopes are allowed now. Default: all.
        redactor: Checks every candidate first. Default: refuse keys, tokens, card numbers and other secrets.
        extractor: The extractor for ``derive`` calls without an extractor.
        max_keyed: The largest number of preferences and facts of one subject. None: no limit. Default: 1000.
        clock: Returns the current time, timezone-aware. Records expire by it. Default: the machine's clock.
        embedder: Lets search find texts that share no word with a query. It embeds each text once, at the first search
            that needs it. The vectors are stored next to the memories. If it fails, search compares words only.
        count_tokens: Counts the tokens of a text for ``context``. Default: ``tiktoken`` if it is installed, otherwise
            an estimate that is rather too high.
        index_bytes: The approximate memory for the search indexes of all subjects, in bytes. Default: 512 MiB.
        merger: Chooses a value when a new preference or fact would replace another value. Without a merger, the new
            value replaces the old one. ``update`` does not use it. If the merger returns None or fails, the new value
            is stored with the tag ``uncertain`` and the outcome has the reason.
        quotas: More limits of one subject: records, bytes and tokens of the profile. Default: no limits.
        reranker: Orders the best hits of a search again. Default: hits keep the order of the index.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        config: Mapping[str, object] | None = None,
        policy: Policy | None = None,
        execution: Execution | None = None,
        redactor: Redactor = stop_secrets,
        extractor: Extractor | None = None,
        max_keyed: int | None = 1_000,
        clock: Clock = utc_now,
        embedder: Embedder | None = None,
        count_tokens: CountTokens | None = None,
        index_bytes: int = INDEX_BYTES,
        merger: Merger | None = None,
        quotas: Quotas = NO_QUOTAS,
        reranker: Reranker | None = None,
    ) -> None:
        """Create a client without reading the store or a file.

        Raises:
            InvalidArgument: A limit is below 1, a hook lacks its method, the configuration is invalid, or an argument
                has to be configured on the server. The message names the argument, key or environment variable.
        """
        if max_keyed is not None and (type(max_keyed) is not int or max_keyed < 1):
            raise InvalidArgument(f"max_keyed must be an integer from 1, or None, got {describe(max_keyed)}")
        check_limit(index_bytes, "index_bytes")
        if not isinstance(quotas, Quotas):
            raise InvalidArgument(f"quotas must be a Quotas, got {describe(quotas)}")
        if store is not None and config is not None:
            raise InvalidArgument("config is only for a client without a store, which opens the store itself")
        self._hooks = Hooks(
            _DEFAULT_HOOKS.policy if policy is None else policy,
            _DEFAULT_HOOKS.execution if execution is None else execution,
            redactor,
            extractor,
            max_keyed,
            clock,
            embedder,
            count_tokens,
            merger,
            index_bytes,
            quotas,
            reranker,
        )
        self._warm = WarmSubjects()
        self._indexes = WarmIndexes(index_bytes)
        self._own_context: Context | Served | None = None
        if store is None:
            settings = read_settings(config)
            self._is_served = settings.mode == "remote"
            self._own_context = self._context_of(settings.principal)
            self._store = LazyStore(settings, self._indexes)
        else:
            require_store(store)
            self._is_served = isinstance(store, ServesMemory)
            self._store = LazyStore(store, self._indexes)
        if self._is_served:
            self._hooks.check_unchanged(_DEFAULT_HOOKS)

    def _context_of(self, principal: Principal | None) -> Context | Served:
        if self._is_served or principal is None:
            return Served(principal, self._hooks.embedder)
        return Context(principal, self._hooks, self._warm, self._indexes)

    def of(self, principal: Principal) -> Memory:
        """Return the memory that a principal may reach. Raises ``InvalidArgument`` if it is not a ``Principal``.

        On a server, the calls of this memory raise ``AccessDenied`` if the token does not reach the principal.
        """
        if not isinstance(principal, Principal):
            raise InvalidArgument(f"expected a Principal, got {describe(principal)}")
        return Memory(self._store, principal, self._context_of(principal))

    @property
    def extractor(self) -> Extractor | None:
        """The extractor that finds memories in the events of runs, or None."""
        return self._hooks.extractor

    async def execute(self, operation: Operation[Result]) -> Result:
        """Carry out an operation for the client's principal, as the method with its name does.

        Raises ``InvalidArgument`` if a store was passed to the client, because it has no principal of its own then.
        """
        if self._own_context is None:
            raise InvalidArgument("a client with a passed store has no principal: call .of(principal) first")
        return await run_async(execute(operation, self._own_context), await self._store.get())

    async def subjects(self, tenant: str | None = None) -> tuple[SubjectId, ...]:
        """Return the subjects that have memory in the store, sorted. This call is for operators.

        ``tenant`` limits the result to one tenant. Default: all tenants.
        """
        return await run_async(list_subjects(tenant), await self._store.get())

    async def aclose(self) -> None:
        """Store which records were used, and close the store that this client opened. A passed store stays open.

        A use that cannot be stored is lost, because it only delays the ageing of its record.
        """
        with suppress(AgentMemoryLogError):
            for subject in self._warm.with_uses():
                principal = Principal(subject.tenant, {subject.scope: subject.id})
                context = Context(principal, self._hooks, self._warm, self._indexes)
                await run_async(store_uses(context), await self._store.get())
        await self._store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()
