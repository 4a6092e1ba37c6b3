"""The tokens of a store, which are events of one of its runs, so that several servers share them.

A token is ``aml_``, its id and a secret of 256 random bits. The store holds only the SHA-256 of the secret. It needs no
salt and no slow hash, because no attacker can guess 256 bits.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from agent_memory_log.errors import InvalidArgument, VersionConflict
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.fields import describe, in_quotes
from agent_memory_log.events.payloads import EventData
from agent_memory_log.events.registry import register_own_payload
from agent_memory_log.memory.records.arguments import text_of
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.service.grants import RIGHTS, TOKENS_AGENT, Grant, rights_in
from agent_memory_log.store import Store

TOKENS_RUN = "tokens"
"""The run of ``TOKENS_AGENT`` that holds the tokens."""

PREFIX = "aml_"
"""The first characters of every token. Scanners of secrets find it by them."""

MOST_DAYS = 3_650
"""The longest life of a token, in days."""

_TOKEN = re.compile(PREFIX + "([0-9a-f]{16})_([0-9a-f]{64})")
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_LONGEST_PATTERN = 512
_ATTEMPTS = 20


@register_own_payload
class AccessTokenCreated(EventData, frozen=True):
    """A new token. Its id is the id of the event.

    Attributes:
        name: The name of the token.
        sha256: The SHA-256 of its secret, in hexadecimal digits.
        rights: The rights of the token.
        expires_at: The time at which it ends.
        tenant: The tenant whose memory it reaches, or ``""`` for no memory.
        scopes: The id in each scope of this memory.
        agents: Patterns of the agents whose runs it may use.
    """

    event_type = "access_token_created"

    name: str
    sha256: str
    rights: tuple[str, ...]
    expires_at: datetime
    tenant: str = ""
    scopes: Mapping[str, str] = {}
    agents: tuple[str, ...] = ()


@register_own_payload
class AccessTokenRevoked(EventData, frozen=True):
    """The end of a token before it expires.

    Attributes:
        token: The id of the token.
    """

    event_type = "access_token_revoked"

    token: str


class Token(msgspec.Struct, frozen=True):
    """A token without its secret.

    Attributes:
        id: The id.
        grant: What the token allows. ``grant.name`` is the name of the token.
        sha256: The SHA-256 of the secret, in hexadecimal digits.
        created: When it was created.
        expires_at: When it ends.
        revoked: When it was revoked, or None.
    """

    id: str
    grant: Grant
    sha256: str
    created: datetime
    expires_at: datetime
    revoked: datetime | None = None

    @property
    def status(self) -> str:
        """``active``, ``expired`` or ``revoked``."""
        if self.revoked is not None:
            return "revoked"
        return "active" if datetime.now(UTC) < self.expires_at else "expired"


Tokens = Mapping[str, Token]
"""Tokens by id, the oldest first."""


async def load_tokens(store: Store) -> Tokens:
    """Return all tokens of a store. Raises the errors of ``Store.load_run``."""
    run = await store.load_run(TOKENS_AGENT, TOKENS_RUN)
    return folded({}, run.log)


async def create_token(store: Store, grant: Grant, *, days: int) -> tuple[str, Token]:
    """Create a token. Return it and its entry in the store, which does not hold the token itself.

    Args:
        store: The store.
        grant: What the token allows. A token with the name ``""`` has its id as its name.
        days: The days until the token expires, from 1 to 3650.

    Raises:
        InvalidArgument: An argument is invalid, or another active token has the name.
    """
    _check(grant, days)
    token_id, secret = secrets.token_hex(8), secrets.token_hex(32)
    name, principal, now = grant.name or token_id, grant.principal, datetime.now(UTC)
    created = AccessTokenCreated(
        name=name,
        sha256=sha256_of(secret),
        rights=tuple(sorted(grant.rights)),
        expires_at=now + timedelta(days=days),
        tenant="" if principal is None else principal.tenant,
        scopes={} if principal is None else principal.scopes,
        agents=grant.agents,
    )

    def decide(tokens: Tokens) -> Event:
        if _active(tokens, name) is not None:
            raise InvalidArgument(f"an active token has the name {name}: revoke it, or choose another name")
        return new_event(created, timestamp=now, event_id=token_id)

    tokens = await _append(store, decide)
    return f"{PREFIX}{token_id}_{secret}", tokens[token_id]


async def revoke_token(store: Store, name: str) -> Token:
    """Revoke the active token with a name or an id. Raises ``InvalidArgument`` if there is no such token."""
    revoked = ""

    def decide(tokens: Tokens) -> Event:
        nonlocal revoked
        token = _active(tokens, name)
        if token is None:
            raise InvalidArgument(_unknown(name))
        revoked = token.id
        return new_event(AccessTokenRevoked(token.id))

    return (await _append(store, decide))[revoked]


def _unknown(name: str) -> str:
    """Return the message for a name of no active token. It never repeats a token, which could still be valid."""
    token = split_token(name)
    if token is not None:
        return f"expected the name or the id of a token, got the token itself: its id is {token[0]}"
    return f"no active token has the name or id {in_quotes(name)}: see amlog tokens list"


async def _append(store: Store, decide: Callable[[Tokens], Event]) -> Tokens:
    """Append the event that ``decide`` returns for the newest tokens. Return the tokens after it."""
    attempt = 0
    while True:
        run = await store.load_run(TOKENS_AGENT, TOKENS_RUN)
        tokens = folded({}, run.log)
        event = decide(tokens)
        try:
            stored = await store.append_events(
                TOKENS_AGENT, TOKENS_RUN, event, expected_version=run.version, reserved=True
            )
        except VersionConflict:
            attempt += 1
            if attempt == _ATTEMPTS:
                raise
            continue
        return folded(tokens, stored.events)


def _active(tokens: Tokens, name: str) -> Token | None:
    return next(
        (token for token in tokens.values() if name in (token.id, token.grant.name) and token.status == "active"), None
    )


def folded(tokens: Tokens, events: Iterable[Event]) -> Tokens:
    """Return the tokens after some events. A token whose creation was redacted is unknown."""
    after = dict(tokens)
    for event in events:
        data = event.data
        if isinstance(data, AccessTokenCreated):
            after[event.event_id] = Token(
                event.event_id, _grant_of(data), data.sha256, event.timestamp, data.expires_at
            )
        elif isinstance(data, AccessTokenRevoked) and data.token in after:
            after[data.token] = msgspec.structs.replace(after[data.token], revoked=event.timestamp)
    return after


def _grant_of(created: AccessTokenCreated) -> Grant:
    principal = Principal(created.tenant, created.scopes) if created.tenant else None
    return Grant(created.name, rights_in(created.rights), principal, created.agents)


def split_token(token: str) -> tuple[str, str] | None:
    """Return the id and the secret of a token, or None if it has another form."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else (match[1], match[2])


def sha256_of(secret: str) -> str:
    """Return the SHA-256 of a token's secret, in hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _check(grant: Grant, days: int) -> None:
    """Raise ``InvalidArgument`` with the name of the invalid argument."""
    if grant.name and not _NAME.fullmatch(grant.name):
        raise InvalidArgument(
            f"name must have 1 to 64 of the characters A-Z a-z 0-9 . _ @ - and begin with a letter or digit, got "
            f"{describe(grant.name)}"
        )
    if not grant.rights or not grant.rights <= set(RIGHTS):
        raise InvalidArgument(f"rights must be some of {', '.join(RIGHTS)}, got {describe(sorted(grant.rights))}")
    if type(days) is not int or not 1 <= days <= MOST_DAYS:
        raise InvalidArgument(f"days must be an integer from 1 to {MOST_DAYS:,}, got {describe(days)}")
    if grant.principal is None and not grant.agents:
        raise InvalidArgument("a token needs a tenant with a user, or agents, or both: it allows nothing otherwise")
    for pattern in grant.agents:
        if not text_of(pattern, "agents") or len(pattern) > _LONGEST_PATTERN:
            raise InvalidArgument(f"agents must have 1 to {_LONGEST_PATTERN} characters each, got {describe(pattern)}")
