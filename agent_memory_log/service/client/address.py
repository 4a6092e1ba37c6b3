"""The address of a server: reads a store's URL, its options and the token."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx2
import msgspec

from agent_memory_log.backend_kit import StoreUrl
from agent_memory_log.errors import InvalidArgument

TOKEN_VARIABLE = "AMLOG_TOKEN"  # noqa: S105  # the name of a variable
"""The environment variable with the token, if the URL names none."""

DEFAULT_TIMEOUT_SECONDS = 30

_LONGEST_TIMEOUT_SECONDS = 86_400
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=:@-]+")
"""The characters of a bearer token (RFC 6750), and those that tokens of this library's server may have."""

_WHERE = "set an environment variable to the token, and name it in the URL: ?token_env=NAME"


class Address(msgspec.Struct, frozen=True):
    """A server and the way to reach it. Its text never shows the token.

    Attributes:
        server: The URL of the server, without a slash at its end.
        seconds: The time limit of a call.
        headers: The headers of each request, which hold the token.
        tls: Checks the certificate of the server. For ``http:``, it accepts none.
        grpc_target: The host and port for gRPC, or ``""`` for HTTP.
    """

    server: str
    seconds: int
    headers: Mapping[str, str]
    tls: ssl.SSLContext
    grpc_target: str = ""

    def __repr__(self) -> str:
        return f"Address({self.server!r})"

    @property
    def is_encrypted(self) -> bool:
        """Return whether the connection uses TLS."""
        return self.server.startswith("https:")


def read_address(url: StoreUrl) -> Address:
    """Return the address of a store's URL.

    Raises:
        InvalidArgument: The URL holds a token or a user, or has no host; its host needs TLS; an option is unknown; the
            named variable has no token; the file of certificates cannot be read.
    """
    for name in ("token", "access_token"):
        if url.option(name, ""):
            raise InvalidArgument(f"{url.masked!r} holds a token, and URLs appear in logs: {_WHERE}")
    variable = url.option("token_env", "")
    seconds = url.number("timeout", DEFAULT_TIMEOUT_SECONDS)
    if seconds > _LONGEST_TIMEOUT_SECONDS:
        raise InvalidArgument(f"the option 'timeout' must be at most {_LONGEST_TIMEOUT_SECONDS:,} seconds")
    is_insecure = url.scheme == "http" and url.choice("insecure", ("off", "on")) == "on"
    authority = url.option("ca", "") if url.scheme == "https" else None
    target = url.option("grpc", "")
    url.finish()
    parts = urlsplit(url.rest())
    if "@" in parts.netloc:
        raise InvalidArgument(f"{url.masked!r} has a user or password, and a server takes only tokens: {_WHERE}")
    host = parts.hostname
    server = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    if not host or not _is_valid(server):
        raise InvalidArgument(f"{url.masked!r} names no server: write {url.scheme}://host or {url.scheme}://host:port")
    grpc_host = host if not target else _host_of(target)
    if url.scheme == "http" and not is_insecure and not (_is_loopback(host) and _is_loopback(grpc_host)):
        raise InvalidArgument(
            f"{url.masked!r} would send the token and the data unencrypted to another machine: use https:, or add "
            "?insecure=on if the network between them is safe"
        )
    return Address(server, seconds, _authorization(variable), _tls(authority), target)


def _authorization(variable: str) -> dict[str, str]:
    token = os.environ.get(variable or TOKEN_VARIABLE, "").strip()
    if not token and variable:
        raise InvalidArgument(f"the environment variable {variable}, which token_env names, is not set")
    if token and not _TOKEN.fullmatch(token):
        raise InvalidArgument(f"the environment variable {variable or TOKEN_VARIABLE} does not hold a token")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _tls(authority: str | None) -> ssl.SSLContext:
    if authority is None:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without certificates, it accepts no server
    try:
        return ssl.create_default_context(cafile=authority) if authority else httpx2.create_ssl_context()
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise InvalidArgument(
            f"the option 'ca' must name a file with certificates in the PEM format; {authority!r}: {error}"
        ) from error


def _host_of(target: str) -> str:
    """Return the host of a gRPC target, which has a port and no other part. Raises ``InvalidArgument``."""
    try:
        parts = urlsplit(f"//{target}")
        if parts.hostname and parts.port and parts.netloc == target and "@" not in target:
            return parts.hostname
    except ValueError:
        pass
    raise InvalidArgument(f"the option 'grpc' must be HOST:PORT, got {target!r}")


def _is_valid(server: str) -> bool:
    try:
        _ = httpx2.URL(server), urlsplit(server).port
    except (httpx2.InvalidURL, ValueError):
        return False
    return True


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
