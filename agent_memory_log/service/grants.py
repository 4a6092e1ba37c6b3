"""The rights of a caller of the server. Each call is checked here, from every interface."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import Any, cast

import msgspec

from agent_memory_log.errors import AccessDenied
from agent_memory_log.events.fields import in_quotes
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.records.arguments import Operation, Right
from agent_memory_log.memory.records.principals import CONVERSATIONS, Principal, conversations_of
from agent_memory_log.memory.records.reports.outcomes import (
    DeriveReport,
    Hits,
    MemoryContext,
    Outcome,
    WriteReport,
    without_embedding,
)
from agent_memory_log.service.table import NAMES, needs_principal

RIGHTS: tuple[Right, ...] = ("read", "write", "erase")

ALL_AGENTS = ("*", "@*")
"""The patterns of an operator: every agent, and the library's own agents, which hold the memory of all tenants."""

_OPERATOR = "the token of an operator, with " + " ".join(f"--agents {pattern!r}" for pattern in ALL_AGENTS)

_READ_ONLY = "texts without vectors were compared by words, because the token may not write"

TOKENS_AGENT = "@access"
"""The agent whose run holds the tokens. No caller may use it, because its writer can grant any right."""


class Grant(msgspec.Struct, frozen=True):
    """The rights of a caller, and the memory and the runs that it may reach.

    Attributes:
        name: The name of the caller in logs.
        rights: The rights that the caller has. None includes another.
        principal: The memory that the caller may reach, or None for no memory.
        agents: Patterns of the agents whose runs the caller may use, as in ``support-*``. ``*`` stands for any text and
            ``?`` for one character. They never match the ``@`` at the beginning of the library's own agents, because
            these hold the memory of all tenants. Nor do they match the ingested conversations of other subjects.
    """

    name: str
    rights: frozenset[Right]
    principal: Principal | None = None
    agents: tuple[str, ...] = ()

    def may_use(self, agent: str) -> bool:
        """Return whether the caller may use the runs of an agent.

        Ingested conversations belong to their subject: only it and an operator may use them.
        """
        if agent == TOKENS_AGENT:
            return False
        if agent.startswith(CONVERSATIONS) and not self.may_use_all and agent not in self._own_conversations():
            return False
        reserved = is_reserved(agent)
        return any(is_reserved(pattern) == reserved and _matches(agent, pattern) for pattern in self.agents)

    def _own_conversations(self) -> tuple[str, ...]:
        own = self.principal
        return () if own is None else tuple(conversations_of(own.subject(scope)) for scope in own.scopes)

    @property
    def may_use_all(self) -> bool:
        """True if the caller may use every run of the store, except the one of the tokens."""
        return set(ALL_AGENTS) <= set(self.agents)

    def narrowed(self, principal: Principal) -> Grant:
        """Return the grant for ``principal``, which must not reach more than the caller.

        Raises:
            AccessDenied: The principal has another tenant, or a scope or id that the caller does not have.
        """
        own = self.principal
        if own is None or principal.tenant != own.tenant or not principal.scopes.items() <= own.scopes.items():
            raise AccessDenied(
                "the caller does not reach the memory of this principal: compare it with the tenant, user and scopes "
                "of the token, or of amlog serve"
            )
        return msgspec.structs.replace(self, principal=principal)


def rights_in(names: Collection[str]) -> frozenset[Right]:
    """Return the rights among some names."""
    rights: list[Right] = [right for right in RIGHTS if right in names]
    return frozenset(rights)


def check_access(grant: Grant, operation: Operation[Any]) -> None:
    """Check that a caller may carry out an operation.

    An operation on all runs needs all agents. Two of them, ``runs/list_runs`` and ``runs/erasures``, are always
    allowed, and return only the runs of the agents that the caller may use.

    Raises:
        AccessDenied: The caller lacks the right, has no memory, or may not use an agent that the operation names.
    """
    name = NAMES[type(operation)]
    if operation.right not in grant.rights:
        raise AccessDenied(f"{name} needs the right {operation.right}, which the token does not have")
    if needs_principal(type(operation)) and grant.principal is None:
        raise AccessDenied(
            f"{name} needs a token with a tenant and a user; a server without tokens needs --tenant and --user"
        )
    agents = set(_agents_of(operation))
    for agent in sorted(agents):
        if not grant.may_use(agent):
            raise AccessDenied(
                f"{name}: the caller may not use the runs of the agent {in_quotes(agent)}; its agents are "
                f"{', '.join(map(in_quotes, grant.agents)) or 'none'}"
            )
    if getattr(operation, "reserved", False) and not grant.may_use_all:
        raise AccessDenied(f"{name}: reserved names need {_OPERATOR}")
    if not agents and name in _OF_ALL_RUNS and not grant.may_use_all:
        raise AccessDenied(f"{name} needs an agent, or {_OPERATOR}")


def _matches(agent: str, pattern: str) -> bool:
    """Return whether a pattern matches the whole agent id. Brackets stand for themselves, because ids may have them."""
    return fnmatchcase(agent, pattern.replace("[", "[[]"))


_OF_ALL_RUNS = frozenset({"runs/expire_runs", "runs/check"})


def _agents_of(operation: Operation[Any]) -> Iterable[str]:
    """Yield the agents of all runs that the operation names."""
    agent = getattr(operation, "agent", None)
    if agent is not None:
        yield agent
    for agent, _ in getattr(operation, "runs", None) or ():
        yield agent


def visible_result(grant: Grant, result: object) -> object:
    """Return the result of an operation as the caller may see it.

    A write returns the record that it wrote or met. A caller that may not read gets no record. A caller that may not
    write does not learn which scopes have texts to embed, because it may not store their vectors.
    """
    if isinstance(result, (Hits, MemoryContext)) and result.scopes_to_embed and "write" not in grant.rights:
        return without_embedding(result, _READ_ONLY)
    if "read" in grant.rights:
        return result
    if isinstance(result, Outcome):
        return msgspec.structs.replace(result, record=None)
    if isinstance(result, (WriteReport, DeriveReport)):
        return msgspec.structs.replace(result, outcomes=visible_result(grant, result.outcomes))
    if isinstance(result, tuple):
        return tuple(visible_result(grant, item) for item in cast("tuple[object, ...]", result))
    return result
