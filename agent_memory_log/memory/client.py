"""The memory client, which an application opens on a store to reach the memory of a principal.

``python -m tools.sync_twin`` generates ``sync.py`` from this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory_log.capabilities import KeepsIndexes
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.calls import Memory
from agent_memory_log.memory.policy.rules import check_limit
from agent_memory_log.memory.policy.secrets import stop_secrets
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
    utc_now,
)
from agent_memory_log.memory.stream.context import INDEX_BYTES, Context, Hooks, WarmIndexes, WarmSubjects
from agent_memory_log.memory.stream.subjects import list_subjects
from agent_memory_log.models.tokens import CountTokens
from agent_memory_log.steps import run_async
from agent_memory_log.store import Store

if TYPE_CHECKING:
    from agent_memory_log.recall import Embedder  # needs the extra ``recall``


class MemoryClient:
    """Opens memory in a store. Any number of clients may use the same store.

    A client caches the state of the subjects that it used recently.

        memory = MemoryClient(store)
        me = memory.of(Principal(tenant="acme", scopes={"user": "42"}))
        await me.remember(key="language", value="english")

    Args:
        store: The store that holds the runs and the memory.
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
    """

    def __init__(
        self,
        store: Store,
        *,
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
    ) -> None:
        """Create a client without reading the store. Raises ``InvalidArgument`` if a limit is below 1."""
        if max_keyed is not None and (type(max_keyed) is not int or max_keyed < 1):
            raise InvalidArgument(f"max_keyed must be an integer from 1, or None, got {describe(max_keyed)}")
        check_limit(index_bytes, "index_bytes")
        self._store = store
        self._hooks = Hooks(
            policy or OpenPolicy(),
            execution or OpenExecution(),
            redactor,
            extractor,
            max_keyed,
            clock,
            embedder,
            count_tokens,
            merger,
        )
        self._warm = WarmSubjects()
        self._indexes = WarmIndexes(index_bytes, store.index_folder if isinstance(store, KeepsIndexes) else None)

    def of(self, principal: Principal) -> Memory:
        """Return the memory that a principal may reach. Raises ``InvalidArgument`` if it is not a ``Principal``."""
        if not isinstance(principal, Principal):
            raise InvalidArgument(f"expected a Principal, got {describe(principal)}")
        return Memory(self._store, Context(principal, self._hooks, self._warm, self._indexes))

    async def subjects(self, tenant: str | None = None) -> tuple[SubjectId, ...]:
        """Return the subjects that have memory in the store, sorted. This call is for operators.

        ``tenant`` limits the result to one tenant. Default: all tenants.
        """
        return await run_async(list_subjects(tenant), self._store)
