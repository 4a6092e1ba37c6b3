"""The callers of the server: from the ``Authorization`` header of a request to the rights of its caller."""

from __future__ import annotations

from typing import Protocol

from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.service.grants import ALL_AGENTS, RIGHTS, Grant


class Callers(Protocol):
    """The callers that a server knows."""

    async def grant_of(self, authorization: str | None) -> Grant:
        """Return the rights of the caller. The server asks at each request, and now and then during a stream.

        Args:
            authorization: The value of the ``Authorization`` header, or None if there is no such header.

        Raises:
            Unauthenticated: The header is missing, or its token is unknown, expired or revoked.
        """
        ...


class OneCaller:
    """The only caller of a server without tokens, which only this machine can reach. It has all rights.

    Args:
        principal: The memory that the caller may reach, or None for no memory.
    """

    def __init__(self, principal: Principal | None = None) -> None:
        self._grant = Grant("local", frozenset(RIGHTS), principal, ALL_AGENTS)

    async def grant_of(self, authorization: str | None) -> Grant:  # noqa: ARG002  # there is only this caller
        """See ``Callers.grant_of``."""
        return self._grant
