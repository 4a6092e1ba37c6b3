"""The callers that have a token of the store, and those of a store that has no token yet."""

from __future__ import annotations

import asyncio
import hmac

from agent_memory_log.errors import CursorOutOfRange
from agent_memory_log.service.access.bearer import bearer_token, unauthenticated
from agent_memory_log.service.access.tokens import TOKENS_RUN, Tokens, folded, sha256_of, split_token
from agent_memory_log.service.callers import OneCaller
from agent_memory_log.service.grants import TOKENS_AGENT, Grant
from agent_memory_log.store import RunHead, Store

_NO_SHA256 = "0" * 64


class TokenCallers:
    """Knows the callers by the tokens of a store. Before each call, it looks at the head of the run of the tokens.

    So a new token works, and a revoked one ends, with the next call, in each process that serves the store. A look
    reads no events. Calls that come while a look is under way share the next one.

    Args:
        store: The store that holds the tokens.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._head: RunHead | None = RunHead(0, 1)
        self._tokens: Tokens = {}
        self._lock = asyncio.Lock()
        self._next_look: asyncio.Task[None] | None = None
        """A look that has not begun yet, or None."""

    async def grant_of(self, authorization: str | None) -> Grant:
        """Return what the caller with this ``Authorization`` header may do.

        Raises:
            Unauthenticated: The header has no token that is known and active. The message does not say why.
            StoreUnavailable: The store cannot be read.
        """
        parts = split_token(bearer_token(authorization))
        if parts is None:
            raise unauthenticated()
        token_id, secret = parts
        await self._refresh()
        token = self._tokens.get(token_id)
        is_same = hmac.compare_digest(sha256_of(secret), _NO_SHA256 if token is None else token.sha256)
        if token is None or not is_same or token.status != "active":
            raise unauthenticated()
        return token.grant

    async def has_tokens(self) -> bool:
        """Return whether the store has a token, also one that has ended. Raises ``StoreUnavailable``."""
        await self._refresh()
        return bool(self._tokens)

    async def _refresh(self) -> None:
        """Read the new tokens, if there are any."""
        if self._next_look is None:
            self._next_look = asyncio.ensure_future(self._look())
        await asyncio.shield(self._next_look)  # if this call is cancelled, the others still wait

    async def _look(self) -> None:
        async with self._lock:
            self._next_look = None  # a later call must see a token that is written during this look
            if await self._peek() != self._head:
                await self._read()

    async def _peek(self) -> RunHead | None:
        (head,) = await self._store.peek_runs([(TOKENS_AGENT, TOKENS_RUN)])
        return head

    async def _read(self) -> None:
        """Read the new events, or all events if the run does not continue the earlier ones."""
        last = self._head
        if last is not None and last.version:
            try:
                newer = await self._store.load_run(TOKENS_AGENT, TOKENS_RUN, after=last.version)
            except CursorOutOfRange:  # the store was replaced by an older backup
                newer = None
            if newer is not None and newer.first_seq == last.first_seq and not newer.redactions:
                self._tokens = folded(self._tokens, newer.log)
                self._head = RunHead(newer.version, newer.first_seq)
                return
        run = await self._store.load_run(TOKENS_AGENT, TOKENS_RUN)
        self._tokens = folded({}, run.log)
        self._head = RunHead(run.version, run.first_seq)


class CallersUntilToken:
    """The callers of a server that starts without tokens: everyone may do everything, until the store has a token.

    From then on, each call needs a token, even if the tokens are deleted later. An open stream of a caller without a
    token ends when the server checks its rights again.

    Args:
        tokens: Knows the callers with a token.
        first: The caller before the first token.
    """

    def __init__(self, tokens: TokenCallers, first: OneCaller) -> None:
        self._tokens = tokens
        self._first: OneCaller | None = first

    async def grant_of(self, authorization: str | None) -> Grant:
        """See ``Callers.grant_of``."""
        if self._first is not None and await self._tokens.has_tokens():
            self._first = None
        return await (self._first or self._tokens).grant_of(authorization)
