"""Tests of the URLs of servers: refused URLs, and tokens, which no message shows."""

from __future__ import annotations

import pytest

from agent_memory_log import open_store, open_sync_store
from agent_memory_log.backend_kit import StoreUrl
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.opening import install_hint
from agent_memory_log.service.client.address import Address, read_address

SECRET = "s3cr3t-token"


def address_of(url: str) -> Address:
    return read_address(StoreUrl.parse(url))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"https://host?token={SECRET}", "token_env=NAME"),
        (f"https://host?access_token={SECRET}", "token_env=NAME"),
        (f"https://user:{SECRET}@host", "token_env=NAME"),
        (f"https://{SECRET}@host/base", "token_env=NAME"),
        ("https://", "names no server"),
        ("https:///path", "names no server"),
        ("https:host", "names no server"),
        ("https://:8443", "names no server"),
        ("https://host:port", "names no server"),
        ("https://host:99999", "names no server"),
        ("http://example.com", "insecure=on"),
        ("http://10.0.0.1:8300", "insecure=on"),
        ("http://[2001:db8::1]", "insecure=on"),
        ("http://localhost.example.com", "insecure=on"),
        ("http://localhost?insecure=1", "must be off or on"),
        ("https://host?insecure=on", "no option 'insecure'"),
        ("http://localhost?ca=x.pem", "no option 'ca'"),
        ("https://host?verify=off", "no option 'verify'"),
        ("https://host?grpc=other", "must be HOST:PORT"),
        ("https://host?grpc=other:0", "must be HOST:PORT"),
        ("https://host?grpc=other:port", "must be HOST:PORT"),
        ("https://host?grpc=other:1/path", "must be HOST:PORT"),
        ("https://host?grpc=dns:///other:1", "must be HOST:PORT"),
        ("https://host?grpc=user@other:1", "must be HOST:PORT"),
        ("http://localhost?grpc=10.0.0.1:8301", "insecure=on"),
        ("https://host?timeout=0", "integer from 1"),
        ("https://host?timeout=1.5", "integer from 1"),
        ("https://host?timeout=86401", "at most 86,400"),
        ("https://host?token_env=AMLOG_TEST_MISSING", "AMLOG_TEST_MISSING"),
        ("https://host?ca=/nowhere/ca.pem", "/nowhere/ca.pem"),
        (f"https://host?ca={__file__}", "PEM"),
    ],
)
async def test_a_wrong_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        open_sync_store(url)
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)
    with pytest.raises(InvalidArgument):
        await open_store(url)


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("https://host", "https://host"),
        ("https://host:8443/", "https://host:8443"),
        ("https://host/base/path/?timeout=5", "https://host/base/path"),
        ("http://localhost:8300", "http://localhost:8300"),
        ("http://127.9.9.9", "http://127.9.9.9"),
        ("http://[::1]:1", "http://[::1]:1"),
        ("http://10.0.0.1?insecure=on", "http://10.0.0.1"),
    ],
)
def test_the_server_of_a_url(url: str, server: str) -> None:
    assert address_of(url).server == server


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert address_of("https://host").headers == {}
    monkeypatch.setenv("AMLOG_TOKEN", f"{SECRET}\n")
    monkeypatch.setenv("OTHER", "other")
    address = address_of("https://host")
    assert address.headers == {"Authorization": f"Bearer {SECRET}"}
    assert SECRET not in repr(address)
    assert SECRET not in str(address)
    assert address_of("https://host?token_env=OTHER").headers == {"Authorization": "Bearer other"}
    for wrong in ("two words", "new\nline", "\u00e9", "a\x01"):
        monkeypatch.setenv("OTHER", wrong)
        with pytest.raises(InvalidArgument) as caught:
            address_of("https://host?token_env=OTHER")
        assert wrong not in str(caught.value)


def test_an_encrypted_connection_always_checks_the_certificate() -> None:
    for url in ("https://host", "http://localhost"):
        context = address_of(url).tls
        assert context.check_hostname
        assert context.verify_mode.name == "CERT_REQUIRED"
    assert not address_of("http://localhost").tls.get_ca_certs()


def test_a_missing_package_says_what_to_install() -> None:
    for scheme in ("http", "https"):
        assert "agent-memory-log[remote]" in install_hint(scheme, "")
