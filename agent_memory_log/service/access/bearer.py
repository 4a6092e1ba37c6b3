"""Reads the ``Authorization`` header. Every refusal has the same message, so that it gives nothing away."""

from __future__ import annotations

from agent_memory_log.errors import Unauthenticated
from agent_memory_log.service.access.tokens import PREFIX
from agent_memory_log.service.callers import Callers
from agent_memory_log.service.grants import Grant

MOST_CHARACTERS = 8_192
"""The longest token that is looked at, in characters."""


def bearer_token(authorization: str | None) -> str:
    """Return the token of an ``Authorization`` header. Raises ``Unauthenticated`` if it has none, or a long one."""
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not token or not token.isascii() or len(token) > MOST_CHARACTERS:
        raise unauthenticated()
    return token


def unauthenticated() -> Unauthenticated:
    """Return the error for an unknown caller. It is the same for every reason."""
    return Unauthenticated("the token is missing, unknown, expired or revoked")


class BearerCallers:
    """Knows the callers by the tokens of a store, and by those of an issuer.

    Args:
        tokens: Knows the callers with a token of the store.
        issuer: Knows the callers with another token.
    """

    def __init__(self, tokens: Callers, issuer: Callers) -> None:
        self._tokens = tokens
        self._issuer = issuer

    async def grant_of(self, authorization: str | None) -> Grant:
        """See ``Callers.grant_of``."""
        is_ours = bearer_token(authorization).startswith(PREFIX)
        return await (self._tokens if is_ours else self._issuer).grant_of(authorization)
