"""Tests of the tokens of an issuer, with an issuer and keys of the tests' own over real HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.errors import InvalidArgument, StoreUnavailable, Unauthenticated
from agent_memory_log.memory import Principal
from agent_memory_log.service.access import key_set
from agent_memory_log.service.access.key_set import ALGORITHMS, KeySet
from agent_memory_log.service.access.oidc import Claims, OidcCallers
from agent_memory_log.service.grants import Grant
from tests.service.access.issuer import AUDIENCE, Issuer, running_issuer

MESSAGE = "the token is missing, unknown, expired or revoked"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        running.add_key("first")
        yield running


class Clock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def callers_of(issuer: Issuer, clock: Clock | None = None, **claims: str) -> OidcCallers:
    callers = OidcCallers(issuer.url, AUDIENCE, Claims(**claims))
    if clock is not None:
        callers._keys = KeySet(issuer.url, clock=clock)
    return callers


async def is_known(callers: OidcCallers, token: str) -> bool:
    try:
        await callers.grant_of(f"Bearer {token}")
    except Unauthenticated as error:
        assert str(error) == MESSAGE  # noqa: PT017  # one of two outcomes
        return False
    return True


def encoded(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


async def test_the_claims_become_a_grant(issuer: Issuer) -> None:
    grant = await callers_of(issuer).grant_of(f"Bearer {issuer.token('first')}")
    assert grant == Grant("oidc:@memory/acme/user/42", frozenset({"read", "write"}), Principal("acme", {"user": "42"}))


async def test_the_claims_can_have_other_names_and_be_lists(issuer: Issuer) -> None:
    callers = callers_of(issuer, tenant="https://acme.example/org", user="email", rights="scp", agents="groups")
    token = issuer.token(
        "first",
        **{
            "https://acme.example/org": "umbrella",
            "email": "kim@example.org",
            "scp": ["amlog:erase"],
            "groups": ["support-*", "a b"],
            "aud": ["other", AUDIENCE],
        },
    )
    grant = await callers.grant_of(f"Bearer {token}")
    principal = Principal("umbrella", {"user": "kim@example.org"})
    assert grant == Grant(
        "oidc:@memory/umbrella/user/kim@example.org", frozenset({"erase"}), principal, ("support-*", "a b")
    )


async def test_no_two_users_have_the_same_name_in_the_audit(issuer: Issuer) -> None:
    callers = callers_of(issuer)
    users = (("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("a", "c"))
    tokens = [issuer.token("first", tenant=tenant, sub=user) for tenant, user in users]
    names = {(await callers.grant_of(f"Bearer {token}")).name for token in tokens}
    assert len(names) == len(users)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_every_pinned_algorithm_works(issuer: Issuer, algorithm: str) -> None:
    issuer.add_key("second", algorithm)
    assert await is_known(callers_of(issuer), issuer.token("second"))


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://other.example"},
        {"iss": None},
        {"aud": "other"},
        {"aud": ["other"]},
        {"aud": []},
        {"aud": None},
        {"exp": 1},
        {"exp": None},
        {"exp": "tomorrow"},
        {"exp": 1e400},
        {"nbf": 9_999_999_999},
        {"nbf": []},
        {"iat": 9_999_999_999},
        {"sub": None},
        {"sub": 42},
        {"sub": ""},
        {"sub": " 42"},
        {"sub": "4\u200b2\u200b"},
        {"sub": "a" * 600},
        {"tenant": None},
        {"tenant": ""},
        {"tenant": ["acme"]},
        {"tenant": {"acme": 1}},
        {"tenant": 0},
        {"scope": None},
        {"scope": ""},
        {"scope": "openid read amlog:all"},
        {"scope": {"amlog:read": 1}},
        {"scope": [1]},
        {"scope": 7},
        {"amlog_agents": "@*"},
        {"amlog_agents": ["a", "@memory/acme/user/42"]},
        {"amlog_agents": [None]},
        {"amlog_agents": 1},
    ],
    ids=str,
)
async def test_a_token_with_wrong_or_missing_claims_is_refused(issuer: Issuer, changes: dict[str, Any]) -> None:
    assert not await is_known(callers_of(issuer), issuer.token("first", **changes))


async def test_clocks_may_differ_by_the_leeway(issuer: Issuer) -> None:
    now, callers = int(time.time()), callers_of(issuer)
    assert await is_known(callers, issuer.token("first", exp=now - 10, nbf=now + 10, iat=now + 10))
    assert not await is_known(callers, issuer.token("first", exp=now - 40))
    assert not await is_known(callers, issuer.token("first", nbf=now + 100))


async def test_a_token_without_a_signature_is_refused(issuer: Issuer) -> None:
    callers = callers_of(issuer)
    for algorithm in ("none", "None", "", None):
        header = encoded({"alg": algorithm, "kid": "first"})
        assert not await is_known(callers, f"{header}.{encoded(issuer.claims())}.")
    head, claims, signature = issuer.token("first").split(".")
    assert not await is_known(callers, f"{head}.{encoded(issuer.claims(sub='43'))}.{signature}")
    assert not await is_known(callers, f"{head}.{claims}.")


async def test_the_public_key_is_no_secret_for_a_symmetric_signature(issuer: Issuer) -> None:
    key = issuer.add_key("rsa", "RS256")
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    shared = {"kid": "oct", "kty": "oct", "k": encoded(b"s" * 64), "alg": "HS256", "use": "sig"}
    issuer.keys["oct"] = key, shared
    callers = callers_of(issuer)
    assert await is_known(callers, issuer.token("rsa"))
    for secret, key_id in ((public, "rsa"), (b"s" * 64, "oct")):
        head, body = encoded({"alg": "HS256", "kid": key_id}), encoded(issuer.claims())
        algorithm = jwt.get_algorithm_by_name("HS256")
        signature = encoded(algorithm.sign(f"{head}.{body}".encode(), secret))
        assert not await is_known(callers, f"{head}.{body}.{signature}")


async def test_a_key_works_only_for_its_own_algorithm_and_use(issuer: Issuer) -> None:
    key = issuer.add_key("rsa", "RS256")
    issuer.add_key("weak", "RS256", bits=1024)
    issuer.add_key("encrypts", "RS256", use="enc")
    callers = callers_of(issuer)
    other = jwt.encode(issuer.claims(), key, "PS256", {"kid": "rsa"})
    unknown = jwt.encode(issuer.claims(), key, "RS256", {"kid": "weak"})
    with pytest.warns(UserWarning, match="below the minimum"):
        weak = issuer.token("weak")
    for token in (other, unknown, weak, issuer.token("encrypts")):
        assert not await is_known(callers, token)


async def test_a_key_in_the_header_is_not_used(issuer: Issuer) -> None:
    with running_issuer() as attacker:
        key = attacker.add_key("evil")
        public = attacker.keys["evil"][1]
        callers = callers_of(issuer)
        for header in ({"jwk": public}, {"jku": f"{attacker.url}/keys"}, {"kid": f"{attacker.url}/keys"}):
            token = jwt.encode(issuer.claims(), key, "ES256", {"kid": "first", **header})
            assert not await is_known(callers, token)
        assert not attacker.requests


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"crit": []}, {"b64": False}, {"kid": 1}, {"kid": None}])
async def test_a_token_with_a_header_that_must_be_understood_is_refused(issuer: Issuer, header: dict[str, Any]) -> None:
    key, _ = issuer.keys["first"]
    head, body = encoded({"alg": "ES256", "kid": "first", **header}), encoded(issuer.claims())
    signature = jwt.get_algorithm_by_name("ES256").sign(f"{head}.{body}".encode(), key)
    assert not await is_known(callers_of(issuer), f"{head}.{body}.{encoded(signature)}")


async def test_a_token_without_key_id_needs_a_set_of_one_key(issuer: Issuer) -> None:
    key, _ = issuer.keys["first"]
    token = jwt.encode(issuer.claims(), key, "ES256")
    assert await is_known(callers_of(issuer), token)
    issuer.keys["oct"] = key, {"kid": "oct", "kty": "oct", "k": encoded(b"s" * 64), "alg": "HS256"}
    assert await is_known(callers_of(issuer), token), "a shared secret is no key of the set"
    issuer.add_key("second")
    assert not await is_known(callers_of(issuer), token)


async def test_new_keys_are_read_and_removed_keys_end(issuer: Issuer) -> None:
    clock = Clock()
    callers = callers_of(issuer, clock)
    old = issuer.token("first")
    assert await is_known(callers, old)
    issuer.keys.clear()
    issuer.add_key("second")
    new = issuer.token("second")
    assert not await is_known(callers, new), "the keys were read within the last minute"
    clock.now += 61
    assert await is_known(callers, new)
    assert not await is_known(callers, old)
    issuer.keys.clear()
    issuer.add_key("third")
    assert await is_known(callers, new)
    clock.now += 3_601
    assert not await is_known(callers, new)


async def test_unknown_keys_do_not_make_us_read_without_limit(issuer: Issuer) -> None:
    clock = Clock()
    callers = callers_of(issuer, clock)
    key, _ = issuer.keys["first"]
    tokens = [jwt.encode(issuer.claims(), key, "ES256", {"kid": f"k{number}"}) for number in range(50)]
    assert not any(await asyncio.gather(*(is_known(callers, token) for token in tokens)))
    assert issuer.requests["/keys"] == 1
    clock.now += 61
    assert not any(await asyncio.gather(*(is_known(callers, token) for token in tokens)))
    assert issuer.requests["/keys"] == 2
    assert await is_known(callers, issuer.token("first"))


async def test_callers_that_come_first_wait_for_the_same_read(issuer: Issuer) -> None:
    callers = callers_of(issuer)
    token = issuer.token("first")
    assert all(await asyncio.gather(*(is_known(callers, token) for _ in range(20))))
    assert issuer.requests["/keys"] == 1


async def test_known_keys_outlive_an_issuer_that_fails_for_a_day(issuer: Issuer) -> None:
    clock = Clock()
    callers = callers_of(issuer, clock)
    token = issuer.token("first")
    issuer.status = 500
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await callers.grant_of(f"Bearer {token}")
    issuer.status = 200
    with pytest.raises(StoreUnavailable):
        await callers.grant_of(f"Bearer {token}")
    clock.now += 61
    assert await is_known(callers, token)
    issuer.status = 500
    clock.now += 23 * 3_600
    assert await is_known(callers, token)
    clock.now += 2 * 3_600
    with pytest.raises(StoreUnavailable):
        await callers.grant_of(f"Bearer {token}")


DISCOVERY = "/.well-known/openid-configuration"


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (DISCOVERY, b"not json"),
        (DISCOVERY, b"[]"),
        (DISCOVERY, b"{}"),
        (DISCOVERY, b'{"issuer": "https://other.example", "jwks_uri": "URL/keys"}'),
        (DISCOVERY, b'{"issuer": "URL/", "jwks_uri": "URL/keys"}'),
        (DISCOVERY, b'{"issuer": "URL"}'),
        (DISCOVERY, b'{"issuer": "URL", "jwks_uri": "http://192.0.2.1/keys"}'),
        (DISCOVERY, b'{"issuer": "URL", "jwks_uri": "file:///etc/passwd"}'),
        (DISCOVERY, b'{"issuer": "URL", "jwks_uri": "http://[::1"}'),
        (DISCOVERY, b"[" * 100_000),
        ("/keys", b"{" + b" " * 300_000 + b"}"),
        ("/keys", b"\xff"),
    ],
)
async def test_a_wrong_document_gives_no_keys(issuer: Issuer, path: str, document: bytes) -> None:
    issuer.documents[path] = lambda: document.replace(b"URL", issuer.url.encode())
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await callers_of(issuer).grant_of(f"Bearer {issuer.token('first')}")


@pytest.mark.parametrize("keys", [None, {}, [None, 1, "x", {}, {"kty": "EC"}, {"kty": "RSA", "n": 1}, {"kty": []}]])
async def test_unusable_keys_are_left_out(issuer: Issuer, keys: Any) -> None:
    good = issuer.keys["first"][1]
    issuer.documents["/keys"] = lambda: json.dumps({"keys": keys}).encode()
    assert not await is_known(callers_of(issuer), issuer.token("first"))
    if isinstance(keys, list):
        issuer.documents["/keys"] = lambda: json.dumps({"keys": [*keys, good]}).encode()
        assert await is_known(callers_of(issuer), issuer.token("first"))


@pytest.mark.parametrize("status", [302, 404, 503])
async def test_redirects_and_errors_give_no_keys(issuer: Issuer, status: int) -> None:
    issuer.status = status
    with pytest.raises(StoreUnavailable):
        await callers_of(issuer).grant_of(f"Bearer {issuer.token('first')}")
    assert issuer.requests.total() == 1


async def test_an_issuer_that_sends_byte_by_byte_is_given_up(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_set, "_TIMEOUT", 0.5)
    issuer.is_slow.set()
    with pytest.raises(StoreUnavailable):
        await callers_of(issuer).grant_of(f"Bearer {issuer.token('first')}")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "acme.example",
        "http://acme.example",
        "ftp://acme.example",
        "https://",
        "http://127.0.0.1.example",
        "https://[",
        "http://localhost@acme.example",
    ],
)
def test_an_issuer_needs_an_encrypted_url(url: str) -> None:
    with pytest.raises(InvalidArgument, match="must be a URL that begins with https://"):
        OidcCallers(url, AUDIENCE)


def test_an_audience_is_required() -> None:
    with pytest.raises(InvalidArgument, match="audience"):
        OidcCallers("https://acme.example", "")


@pytest.fixture(scope="module")
def quiet_issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        running.add_key("first")
        yield running


_PARTS = st.one_of(
    st.binary(max_size=60).map(encoded),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    ).map(encoded),
    st.fixed_dictionaries(
        {"alg": st.sampled_from([*ALGORITHMS, "none", "HS256", None])},
        optional={"kid": st.just("first"), "b64": st.booleans()},
    ).map(encoded),
    st.text(max_size=20),
)


@given(st.lists(_PARTS, min_size=1, max_size=5))
def test_no_token_causes_another_error(quiet_issuer: Issuer, parts: list[str]) -> None:
    assert not asyncio.run(is_known(callers_of(quiet_issuer), ".".join(parts)))


@pytest.mark.parametrize("depth", [900, 6_000])
async def test_deep_nesting_is_refused(issuer: Issuer, depth: int) -> None:
    head = encoded(b'{"alg":"ES256","kid":"first","x":' + b"[" * depth + b"]" * depth + b"}")
    assert not await is_known(callers_of(issuer), f"{head}.{encoded({})}.{encoded(b'x')}")
