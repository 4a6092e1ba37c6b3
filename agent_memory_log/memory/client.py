"""The client: what an application opens on a store, to get at the memory of a principal.

``sync.py`` is made from this file by ``python -m tools.sync_twin``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    """Memory in a store. Keeps the subjects that are used warm; any number of clients may work on one store.

    - ``policy``: what may be asked for; ``execution``: what is permitted now; ``redactor``: sees every value first;
      unless said, one that refuses keys, tokens and card numbers.
    - ``extractor``: what ``derive`` asks where it is not given one.
    - ``max_keyed``: how many preferences and facts a subject holds (None: any number).
    - ``clock``: what time it is; records expire by it.
    - ``embedder``: finds what shares no word with a question. It is asked for each text once, when it is searched for
      the first time; its vectors are stored beside the memories. Where it fails, words alone are compared.
    - ``count_tokens``: how many tokens a text has, for ``context``; unless said ``tiktoken``'s count where that is
      installed, else the bytes of the text, which no tokenizer goes beyond.
    - ``index_bytes``: how much memory the indexes of all subjects that were searched lately may take, about.
    - ``merger``: asked what holds where a preference or fact is to take the place of another value; without one, the
      new value does. Not asked about an ``update``. Where it cannot say, or fails, the new value is kept with the tag
      ``uncertain``, and the outcome has the reason.

        memory = MemoryClient(store)
        me = memory.of(Principal(tenant="acme", scopes={"user": "42"}))
        await me.remember(key="language", value="english")
    """

    def __init__(
        self,
        store: Store,
        *,
        policy: Policy | None = None,
        execution: Execution | None = None,
        redactor: Redactor = stop_secrets,
        extractor: Extractor | None = None,
        max_keyed: int | None = 100,
        clock: Clock = utc_now,
        embedder: Embedder | None = None,
        count_tokens: CountTokens | None = None,
        index_bytes: int = INDEX_BYTES,
        merger: Merger | None = None,
    ) -> None:
        """Does nothing to the store. Raises ``InvalidArgument`` for a ``max_keyed`` or ``index_bytes`` below 1."""
        if max_keyed is not None and (type(max_keyed) is not int or max_keyed < 1):
            raise InvalidArgument(f"max_keyed must be an integer from 1, or None, found {describe(max_keyed)}")
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
        self._indexes = WarmIndexes(index_bytes)

    def of(self, principal: Principal) -> Memory:
        """The memory that a principal may reach."""
        if not isinstance(principal, Principal):
            raise InvalidArgument(f"memory belongs to a Principal, found {describe(principal)}")
        return Memory(self._store, Context(principal, self._hooks, self._warm, self._indexes))

    async def subjects(self, tenant: str | None = None) -> tuple[SubjectId, ...]:
        """The subjects that the store holds memory of, sorted; of one tenant, or of all: for operators."""
        return await run_async(list_subjects(tenant), self._store)
