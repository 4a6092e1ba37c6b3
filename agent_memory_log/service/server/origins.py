"""Guards a server without tokens against web pages that are open in a browser on the same machine.

A page of another site could send requests to the server, and with DNS rebinding it could read the answers. So the
server refuses every request whose ``Host`` is not a name of this machine, or whose ``Origin`` is another site.
"""

from __future__ import annotations

from functools import cache

from starlette.types import Scope

from agent_memory_log.errors import AccessDenied

_NAMES = (b"localhost", b"127.0.0.1", b"[::1]")


def check_origin(scope: Scope, port: int) -> None:
    """Check that a request comes from a program of this machine, or from the server's own page.

    Raises:
        AccessDenied: The ``Host`` is not a name of this machine with the server's port, or the ``Origin`` is another.
    """
    hosts, origins = _own(scope["scheme"], port)
    sent = 0
    for name, value in scope["headers"]:
        if name == b"host":
            sent += 1
            if value.lower() not in hosts or sent > 1:
                raise AccessDenied(f"the Host must be localhost:{port}, because the server has no tokens")
        elif name == b"origin" and value not in origins:
            raise AccessDenied("requests from web pages of other sites are refused, because the server has no tokens")
    if not sent:
        raise AccessDenied("the Host is missing")


@cache
def _own(scheme: str, port: int) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """Return the hosts and the origins of the server."""
    hosts = [b"%s:%d" % (name, port) for name in _NAMES]
    if port == {"http": 80, "https": 443}[scheme]:
        hosts += _NAMES
    return frozenset(hosts), frozenset(b"%s://%s" % (scheme.encode(), host) for host in hosts)
