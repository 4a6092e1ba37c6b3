"""The public keys of an OpenID Connect issuer, which are read from its discovery document and its key set.

An unknown key may be new, so the keys are then read again. This happens at most once a minute, because every caller
can invent key ids.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
import jwt
import msgspec

from agent_memory_log.errors import InvalidArgument, StoreUnavailable
from agent_memory_log.events.fields import describe

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""The accepted algorithms. Each signs with a private key, so the published key is of no use to an attacker."""

_SECONDS_BETWEEN_READS = 60
_FRESH_SECONDS = 3_600
"""Keys older than this are read again, so that a key that the issuer removes ends."""

_LONGEST_USE = 24 * 3_600
"""Keys older than this are not used, even if the issuer cannot be reached."""

_TIMEOUT = 5
"""The time for both documents, in seconds."""

_MOST_BYTES = 256 * 1024
"""The largest document, in bytes."""

_MOST_KEYS = 100
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_DISCOVERY = "/.well-known/openid-configuration"

_logger = logging.getLogger(__name__)


class KeySet:
    """The keys of an issuer by key id.

    Args:
        issuer: The URL of the issuer.
        clock: Returns the time in seconds, which never goes back.

    Raises:
        InvalidArgument: The URL is not one of ``https``, and not one of ``http`` on this machine.
    """

    def __init__(self, issuer: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        _check_url(issuer, "the issuer")
        self._issuer = issuer
        self._clock = clock
        self._keys: Sequence[jwt.PyJWK] = ()
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._lock = asyncio.Lock()

    async def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """Return the key with an id, or None. Without an id, return the only key of the set.

        Raises ``StoreUnavailable`` if no keys could be read yet, or for a day.
        """
        key = self._key_of(key_id)
        if key is None or (self._age() > _FRESH_SECONDS and self._may_read()):
            async with self._lock:  # which waits for a read that is under way
                if self._may_read():
                    await self._read()
            key = self._key_of(key_id)
        if self._age() > _LONGEST_USE:
            raise StoreUnavailable(f"the keys of the issuer {self._issuer} cannot be read: try again later")
        return key

    async def contact(self) -> str:
        """Read the keys. Return the reason why they cannot be read, or ``""``. Then ``find`` tries again at once."""
        async with self._lock:
            reason = await self._read()
            if reason:
                self._tried_at = None
        return reason

    def _key_of(self, key_id: str | None) -> jwt.PyJWK | None:
        keys = [key for key in self._keys if key_id is None or key.key_id == key_id]
        return keys[0] if len(keys) == 1 else None

    def _age(self) -> float:
        return float("inf") if self._read_at is None else self._clock() - self._read_at

    def _may_read(self) -> bool:
        return self._tried_at is None or self._clock() - self._tried_at >= _SECONDS_BETWEEN_READS

    async def _read(self) -> str:
        """Read the keys. If this fails, keep those that are known, and return the reason."""
        self._tried_at = self._clock()
        try:
            async with asyncio.timeout(_TIMEOUT), httpx2.AsyncClient(timeout=_TIMEOUT) as client:
                discovery = await _json(client, self._issuer.removesuffix("/") + _DISCOVERY)
                keys = await _json(client, _keys_url(discovery, self._issuer))
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, msgspec.DecodeError, InvalidArgument) as error:
            _logger.warning("the keys of the issuer %s cannot be read: %s", self._issuer, error)
            return str(error) or type(error).__name__
        self._keys = _usable(keys.get("keys"))
        self._read_at = self._tried_at
        return ""


async def _json(client: httpx2.AsyncClient, url: str) -> Mapping[str, object]:
    """Return the JSON object at a URL. Raises an error of httpx2, msgspec or ``InvalidArgument``."""
    async with client.stream("GET", url, headers={"accept": "application/json"}) as answer:
        if answer.status_code != HTTPStatus.OK:
            raise InvalidArgument(f"{url} answers with status {answer.status_code}")
        body = b""
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > _MOST_BYTES:
                raise InvalidArgument(f"{url} has more than {_MOST_BYTES:,} bytes")
    return msgspec.json.decode(body, type=dict[str, object])


def _keys_url(discovery: Mapping[str, object], issuer: str) -> str:
    """Return the URL of the key set. Raises ``InvalidArgument`` if the document is that of another issuer."""
    if discovery.get("issuer") != issuer:
        raise InvalidArgument(f"the issuer calls itself {describe(discovery.get('issuer'))}")
    return _check_url(discovery.get("jwks_uri"), "jwks_uri")


def _usable(keys: object) -> Sequence[jwt.PyJWK]:
    """Return the public keys that sign. Others are left out, as RFC 7517 demands."""
    usable: list[jwt.PyJWK] = []
    for fields in cast("list[object]", keys)[:_MOST_KEYS] if isinstance(keys, list) else ():
        if not isinstance(fields, dict) or cast("dict[str, object]", fields).get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK(cast("dict[str, Any]", fields))
        except jwt.PyJWTError:
            continue
        if key.algorithm_name in ALGORITHMS:
            usable.append(key)
    return usable


def _check_url(url: object, name: str) -> str:
    """Return a URL of ``https``, or of ``http`` on this machine. Raises ``InvalidArgument`` for another one."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        is_allowed = bool(parts.hostname) and (
            parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _THIS_MACHINE)
        )
    except ValueError:
        is_allowed = False
    if not is_allowed:
        raise InvalidArgument(f"{name} must be a URL that begins with https://, got {describe(url)}")
    return cast("str", url)
