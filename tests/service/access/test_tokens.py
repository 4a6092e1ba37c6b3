"""Tests of the tokens of a store: their grants, their ends, and their secrets, which are nowhere."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from agent_memory_log import Snapshot, Store, UserMessage, new_event, open_store
from agent_memory_log.errors import InvalidArgument, Unauthenticated
from agent_memory_log.memory import Principal
from agent_memory_log.secrets import find_secrets, redact_text
from agent_memory_log.service.access.token_callers import TokenCallers
from agent_memory_log.service.access.tokens import (
    TOKENS_RUN,
    AccessTokenCreated,
    create_token,
    load_tokens,
    revoke_token,
    sha256_of,
)
from agent_memory_log.service.grants import ALL_AGENTS, RIGHTS, TOKENS_AGENT, Grant
from agent_memory_log.store import RunHead

GRANT = Grant("app", frozenset(RIGHTS), Principal("acme", {"user": "42", "workspace": "ops"}), ("support-*",))
OPERATOR = Grant("operator", frozenset({"read"}), None, ALL_AGENTS)
MESSAGE = "the token is missing, unknown, expired or revoked"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


async def _is_known(callers: TokenCallers, token: str) -> bool:
    try:
        await callers.grant_of(f"Bearer {token}")
    except Unauthenticated as error:
        assert str(error) == MESSAGE  # noqa: PT017  # one of two outcomes
        return False
    return True


@pytest.mark.parametrize("grant", [GRANT, OPERATOR, Grant("log", frozenset({"write"}), None, ("a[1]",))])
async def test_a_token_gives_the_grant_it_was_created_with(store: Store, grant: Grant) -> None:
    token, created = await create_token(store, grant, days=1)
    assert await TokenCallers(store).grant_of(f"Bearer {token}") == created.grant == grant
    assert (await load_tokens(store))[created.id] == created


async def test_a_token_without_a_name_is_named_after_its_id(store: Store) -> None:
    token, created = await create_token(store, msgspec.structs.replace(GRANT, name=""), days=1)
    assert created.grant.name == created.id == token.split("_")[1]


async def test_only_the_hash_of_a_token_is_stored(store: Store, tmp_path: Path) -> None:
    token, created = await create_token(store, GRANT, days=1)
    await TokenCallers(store).grant_of(f"Bearer {token}")
    secret = token.split("_")[2]
    assert created.sha256 == hashlib.sha256(secret.encode()).hexdigest()
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes()
    assert secret not in repr((await store.load_run(TOKENS_AGENT, TOKENS_RUN)).log)


async def test_tokens_differ_and_our_own_rules_find_them(store: Store) -> None:
    tokens = [(await create_token(store, msgspec.structs.replace(GRANT, name=""), days=1))[0] for _ in range(3)]
    assert len({part for token in tokens for part in token.split("_")}) == 7, "aml and six random parts"
    for token in tokens:
        assert [finding.kind for finding in find_secrets(f"use {token}, please")] == ["amlog_token"]
        assert redact_text(f"curl -d {token}") == "curl -d [secret: amlog_token]"


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "{token}",
        "Basic {token}",
        "Bearer{token}",
        "Bearer  {token}",
        "Bearer {token} ",
        "Bearer {token}\n",
        "Bearer {token},{token}",
        "Bearer {token}0",
        "Bearer x{token}",
        "Bearer {upper}",
        "Bearer aml_{id}",
        "Bearer aml_{id}_",
        "Bearer aml_{id}_{other}",
        "Bearer aml_{other_id}_{secret}",
        "Bearer aml_{id}_{sha256}",
        "Bearer aml_{id}_{secret}".replace("a", "\u0430"),
        "Bearer aml_\u0660{id}_{secret}",
        "Bearer " + "a" * 1_000_000,
    ],
)
async def test_every_other_header_is_refused_with_the_same_message(store: Store, authorization: str | None) -> None:
    token, created = await create_token(store, GRANT, days=1)
    _, token_id, secret = token.split("_")
    values = {
        "token": token,
        "upper": token.upper().replace("AML", "aml"),
        "id": token_id,
        "secret": secret,
        "other": "0" * 64,
        "other_id": "0" * 16,
        "sha256": created.sha256,
    }
    header = None if authorization is None else authorization.format(**values)
    with pytest.raises(Unauthenticated) as error:
        await TokenCallers(store).grant_of(header)
    assert str(error.value) == MESSAGE
    assert error.value.__cause__ is None


async def test_the_scheme_may_have_any_case(store: Store) -> None:
    token, _ = await create_token(store, GRANT, days=1)
    assert await TokenCallers(store).grant_of(f"bearer {token}") == GRANT


async def test_a_token_of_another_store_is_unknown(store: Store) -> None:
    async with open_store("memory:") as other:
        token, _ = await create_token(other, GRANT, days=1)
        assert await _is_known(TokenCallers(other), token)
    assert not await _is_known(TokenCallers(store), token)


async def test_a_revoked_token_ends_at_once_in_every_process(store: Store, tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/runs.db") as other:
        servers = [TokenCallers(store), TokenCallers(other)]
        first, _ = await create_token(store, GRANT, days=1)
        second, created = await create_token(other, OPERATOR, days=1)
        for server in servers:
            assert await _is_known(server, first)
            assert await _is_known(server, second)
        revoked = await revoke_token(other, "app")
        assert revoked.status == "revoked"
        for server in servers:
            assert not await _is_known(server, first)
            assert await _is_known(server, second)
        await revoke_token(store, created.id)
        for server in servers:
            assert not await _is_known(server, second)


async def test_a_token_that_has_expired_is_refused(store: Store) -> None:
    token, created = await create_token(store, GRANT, days=1)
    data = AccessTokenCreated(
        name="old",
        sha256=created.sha256,
        rights=("read",),
        expires_at=created.created,
        agents=("*",),
    )
    await store.append_events(TOKENS_AGENT, TOKENS_RUN, new_event(data, event_id="0" * 16), reserved=True)
    callers = TokenCallers(store)
    assert await _is_known(callers, token)
    assert not await _is_known(callers, token.replace(created.id, "0" * 16))
    assert (await load_tokens(store))["0" * 16].status == "expired"
    with pytest.raises(InvalidArgument, match="no active token"):
        await revoke_token(store, "old")


async def test_a_redacted_or_deleted_token_is_unknown(store: Store) -> None:
    callers = TokenCallers(store)
    first, _ = await create_token(store, GRANT, days=1)
    second, _ = await create_token(store, OPERATOR, days=1)
    assert await _is_known(callers, first)
    await store.redact_events(TOKENS_AGENT, TOKENS_RUN, [1])
    assert not await _is_known(callers, first)
    assert await _is_known(callers, second)
    await store.delete_run(TOKENS_AGENT, TOKENS_RUN)
    assert not await _is_known(callers, second)
    third, _ = await create_token(store, GRANT, days=1)
    assert await _is_known(callers, third)
    assert not await _is_known(callers, first)


async def test_an_older_backup_has_only_its_own_tokens() -> None:
    """The store of a running server is replaced by one with a shorter run."""
    async with open_store("memory:") as newer, open_store("memory:") as older:
        callers = TokenCallers(newer)
        tokens = [(await create_token(newer, msgspec.structs.replace(GRANT, name=""), days=1))[0] for _ in range(2)]
        assert await _is_known(callers, tokens[1])
        current, _ = await create_token(older, GRANT, days=1)
        callers._store = older
        assert await _is_known(callers, current)
        assert not await _is_known(callers, tokens[1])


async def test_one_of_many_writers_gets_a_name(store: Store) -> None:
    outcomes = await asyncio.gather(*(create_token(store, GRANT, days=1) for _ in range(5)), return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, InvalidArgument)]
    assert len(refused) == 4
    await revoke_token(store, "app")
    await create_token(store, GRANT, days=1)
    assert [token.status for token in (await load_tokens(store)).values()] == ["revoked", "active"]


async def test_a_name_cannot_be_the_id_of_an_active_token(store: Store) -> None:
    _, created = await create_token(store, GRANT, days=1)
    with pytest.raises(InvalidArgument, match="an active token has the name"):
        await create_token(store, msgspec.structs.replace(GRANT, name=created.id), days=1)


@pytest.mark.parametrize(
    ("changes", "days", "message"),
    [
        ({"name": "a b"}, 1, "name must have"),
        ({"name": "a\n"}, 1, "name must have"),
        ({"name": "oidc:acme/42"}, 1, "name must have"),
        ({"name": "\u0430pp"}, 1, "name must have"),
        ({"name": "a" * 65}, 1, "name must have"),
        ({"rights": frozenset[str]()}, 1, "rights must be some of read, write, erase"),
        ({"rights": frozenset({"read", "admin"})}, 1, "rights must be some of read, write, erase"),
        ({}, 0, "days must be an integer from 1 to 3,650"),
        ({}, 3_651, "days must be"),
        ({}, 1.5, "days must be"),
        ({}, True, "days must be"),
        ({"principal": None, "agents": ()}, 1, "a token needs a tenant with a user, or agents"),
        ({"agents": ("",)}, 1, "agents must have 1 to 512 characters"),
        ({"agents": ("a" * 513,)}, 1, "agents must have 1 to 512 characters"),
        ({"agents": ("\ud800",)}, 1, "agents"),
    ],
)
async def test_an_invalid_token_is_refused_before_it_is_stored(
    store: Store, changes: dict[str, Any], days: Any, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        await create_token(store, msgspec.structs.replace(GRANT, **changes), days=days)
    assert not await load_tokens(store)


class _Counted:
    """A store that counts the looks at heads and the reads of events. A look ends when ``may_end`` is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.looks = self.reads = 0
        self.has_looked, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()

    async def peek_runs(self, runs: list[tuple[str, str]]) -> tuple[RunHead | None, ...]:
        self.looks += 1
        heads = await self._store.peek_runs(runs)
        self.has_looked.set()
        await self.may_end.wait()
        return heads

    async def load_run(self, agent: str, run: str, *, after: int = 0) -> Snapshot:
        self.reads += 1
        return await self._store.load_run(agent, run, after=after)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_a_call_without_news_reads_no_events(store: Store) -> None:
    token, _ = await create_token(store, GRANT, days=1)
    counted = cast("Any", _Counted(store))
    callers = TokenCallers(counted)
    assert all(await asyncio.gather(*(_is_known(callers, token) for _ in range(50))))
    assert (counted.looks, counted.reads) == (1, 1), "calls at the same time share a look"
    assert await _is_known(callers, token)
    assert not await _is_known(callers, "aml_" + "0" * 16 + "_" + "0" * 64)
    assert counted.reads == 1
    await create_token(store, OPERATOR, days=1)
    assert await _is_known(callers, token)
    assert counted.reads == 2


async def test_a_look_that_has_begun_is_not_shared(store: Store) -> None:
    """A token that was created meanwhile works, also if another call is cancelled while it waits for the same look."""
    counted = cast("Any", _Counted(store))
    callers = TokenCallers(counted)
    counted.may_end.clear()
    early = asyncio.create_task(_is_known(callers, "aml_" + "0" * 16 + "_" + "0" * 64))
    await counted.has_looked.wait()
    token, _ = await create_token(store, GRANT, days=1)
    cancelled, late = (asyncio.create_task(_is_known(callers, token)) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    counted.may_end.set()
    assert [await early, await late] == [False, True]
    assert cancelled.cancelled()
    assert counted.looks == 2


async def test_an_append_to_another_run_creates_no_token(store: Store) -> None:
    """An append of a user needs ``reserved``, and the events count only in the run of the tokens."""
    data = AccessTokenCreated(
        "mine", sha256_of("0" * 64), ("read",), (await create_token(store, GRANT, days=1))[1].expires_at, agents=("*",)
    )
    event = new_event(data, event_id="0" * 16)
    await store.append_events("support-1", "tokens", event, new_event(UserMessage(message="hi")))
    assert not await _is_known(TokenCallers(store), f"aml_{'0' * 16}_{'0' * 64}")
