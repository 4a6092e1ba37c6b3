"""What a caller of the server may do. Each call is checked here, whichever interface it came through."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from agent_memory_log.errors import AccessDenied
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.records.arguments import Operation, Right
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.service.table import NAMES, needs_principal

RIGHTS: tuple[Right, ...] = ("read", "write", "erase")

ALL_AGENTS = ("*", "@*")
"""The patterns of an operator: every agent, and the library's own agents, which hold the memory of all tenants."""


class Grant(msgspec.Struct, frozen=True):
    """What a caller may do.

    Attributes:
        name: The name of the caller in logs.
        rights: The rights that the caller has. None includes another.
        principal: The memory that the caller may reach, or None for no memory.
        agents: Patterns of the agents whose runs the caller may use, as in ``support-*``. ``*`` and ``?`` never match
            the ``@`` at the beginning of the library's own agents, because these hold the memory of all tenants.
    """

    name: str
    rights: frozenset[Right]
    principal: Principal | None = None
    agents: tuple[str, ...] = ()

    def may_use(self, agent: str) -> bool:
        """Return whether the caller may use the runs of an agent."""
        reserved = is_reserved(agent)
        return any(pattern.startswith("@") == reserved and fnmatchcase(agent, pattern) for pattern in self.agents)

    @property
    def may_use_all(self) -> bool:
        """Whether the caller may use every run of the store."""
        return set(ALL_AGENTS) <= set(self.agents)

    def narrowed(self, principal: Principal) -> Grant:
        """Return the grant for ``principal``, which must not reach more than the caller.

        Raises:
            AccessDenied: The principal has another tenant, or a scope or id that the caller does not have.
        """
        own = self.principal
        if own is None or principal.tenant != own.tenant or not principal.scopes.items() <= own.scopes.items():
            raise AccessDenied("the token does not reach the memory of this principal")
        return msgspec.structs.replace(self, principal=principal)


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
        raise AccessDenied(f"{name} needs a token with a tenant and a user")
    agents = set(_agents_of(operation))
    denied = next((agent for agent in sorted(agents) if not grant.may_use(agent)), None)
    if denied is not None:
        raise AccessDenied(f"{name}: the token does not allow the agent {denied!r}")
    if getattr(operation, "reserved", False) and not grant.may_use_all:
        raise AccessDenied(f"{name}: the token does not allow reserved names")
    if not agents and name in _OF_ALL_RUNS and not grant.may_use_all:
        raise AccessDenied(f"{name} of all agents needs a token that allows all agents")


_OF_ALL_RUNS = frozenset({"runs/expire_runs", "runs/check"})


def _agents_of(operation: Operation[Any]) -> Iterable[str]:
    """Yield the agents of all runs that the operation names."""
    for name in ("agent", "agent_id"):
        agent = getattr(operation, name, None)
        if agent is not None:
            yield agent
    for agent, _ in getattr(operation, "runs", None) or ():
        yield agent
