"""Tests of what a caller may do."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory_log.errors import AccessDenied
from agent_memory_log.memory import Principal
from agent_memory_log.memory.operations import Derive, Forget, ForgetAll, Get, LinkRun, LinkRuns, Rederive, Remember
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.grants import ALL_AGENTS, RIGHTS, Grant, check_access
from agent_memory_log.service.store_operations import (
    AppendEvents,
    CheckStore,
    DeleteRun,
    ExpireRuns,
    FollowRun,
    ListRuns,
    LoadRun,
    PeekRuns,
    ReadErasures,
)

OWN = Principal(tenant="acme", scopes={"user": "42", "workspace": "ops"})
USER = Grant("user", frozenset(RIGHTS), OWN, ("support-*",))
OPERATOR = Grant("operator", frozenset(RIGHTS), None, ALL_AGENTS)

OF_ANOTHER_AGENT: list[Operation[Any]] = [
    LoadRun("billing", "r"),
    LoadRun("@memory/acme/user/42", "records"),
    LoadRun("@support-1", "r"),
    LoadRun("Support-1", "r"),
    LoadRun("support\u2010a", "r"),
    AppendEvents("billing", "r", ()),
    AppendEvents("support-a", "r", (), reserved=True),
    FollowRun("billing", "r"),
    DeleteRun("billing", "r"),
    PeekRuns((("support-a", "r"), ("billing", "r"))),
    ReadErasures(runs=(("billing", "r"),)),
    ListRuns("billing"),
    CheckStore("billing"),
    CheckStore(),
    ExpireRuns(),
    LinkRun("billing", "r"),
    LinkRuns((("billing", "r"),)),
    Derive("billing", "r"),
    Rederive(runs=(("billing", "r"),)),
    ForgetAll(runs=(("billing", "r"),)),
]


@pytest.mark.parametrize("operation", OF_ANOTHER_AGENT, ids=str)
def test_a_user_reaches_only_the_agents_of_the_token(operation: Operation[Any]) -> None:
    with pytest.raises(AccessDenied):
        check_access(USER, operation)


@pytest.mark.parametrize("operation", [LoadRun("support-a", "r"), Derive("support-a", "r"), ListRuns(), Get(key="k")])
def test_a_user_may_use_the_own_agents_and_memory(operation: Operation[Any]) -> None:
    check_access(USER, operation)


@pytest.mark.parametrize(
    ("rights", "operation"),
    [
        ({"write", "erase"}, LoadRun("support-a", "r")),
        ({"read", "erase"}, AppendEvents("support-a", "r", ())),
        ({"read", "write"}, DeleteRun("support-a", "r")),
        ({"read", "write"}, Forget(key="k")),
        ({"read"}, Remember(key="k", value="v")),
    ],
)
def test_each_right_is_needed(rights: set[Any], operation: Operation[Any]) -> None:
    with pytest.raises(AccessDenied, match=f"needs the right {operation.right}"):
        check_access(Grant("user", frozenset(rights), OWN, ("*",)), operation)


def test_an_operator_reaches_all_runs_and_no_memory() -> None:
    for operation in OF_ANOTHER_AGENT[:15]:
        check_access(OPERATOR, operation)
    with pytest.raises(AccessDenied, match="a tenant and a user"):
        check_access(OPERATOR, Get(key="k"))


@pytest.mark.parametrize("operation", [CheckStore(), ExpireRuns(), AppendEvents("a", "r", (), reserved=True)])
def test_the_patterns_of_an_operator_are_named(operation: Operation[Any]) -> None:
    with pytest.raises(AccessDenied, match=r"the token of an operator, with --agents '\*' --agents '@\*'"):
        check_access(Grant("user", frozenset(RIGHTS), OWN, ("*",)), operation)
    check_access(OPERATOR, operation)


def test_a_principal_can_only_be_narrowed() -> None:
    narrow = Principal(tenant="acme", scopes={"user": "42"})
    assert USER.narrowed(narrow).principal == narrow
    for wider in (
        Principal(tenant="other", scopes={"user": "42"}),
        Principal(tenant="acme", scopes={"user": "43"}),
        Principal(tenant="acme", scopes={"user": "42", "team": "x"}),
    ):
        with pytest.raises(AccessDenied):
            USER.narrowed(wider)
    with pytest.raises(AccessDenied):
        OPERATOR.narrowed(narrow)


def test_no_pattern_reaches_the_tokens() -> None:
    for pattern in ("@access", "@*", "@acces?", "*"):
        assert not Grant("operator", frozenset(RIGHTS), None, (*ALL_AGENTS, pattern)).may_use("@access")


@pytest.mark.parametrize(
    ("pattern", "agent", "is_allowed"),
    [
        ("a[1]", "a[1]", True),
        ("a[1]", "a1", False),
        ("[!x]", "y", False),
        ("a?", "ab", True),
        ("a?", "a", False),
        ("*", "any\nagent", True),
        ("a*", "A1", False),
        ("[@]*", "@memory/acme/user/42", False),
        ("?memory/*", "@memory/acme/user/42", False),
        ("@memory/acme/*", "@memory/acme/user/42", True),
        ("@memory/acme/*", "@memory/acmes/user/42", False),
    ],
)
def test_only_stars_and_question_marks_are_special_in_patterns(pattern: str, agent: str, is_allowed: bool) -> None:
    assert Grant("user", frozenset(RIGHTS), OWN, (pattern,)).may_use(agent) == is_allowed
