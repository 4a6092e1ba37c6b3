"""An OpenID Connect issuer for tests: keys, tokens, and a real HTTP server with its documents."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "amlog"

_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


class Issuer:
    """An issuer that publishes ``keys`` in ``documents``. Tests change both."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: dict[str, tuple[PrivateKey, dict[str, Any]]] = {}
        self.documents: dict[str, Callable[[], bytes]] = {
            "/.well-known/openid-configuration": lambda: json.dumps(
                {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
            ).encode(),
            "/keys": lambda: json.dumps({"keys": [public for _, public in self.keys.values()]}).encode(),
        }
        self.requests: Counter[str] = Counter()
        self.status = 200
        self.is_slow = threading.Event()
        """If set, the issuer answers one byte now and then, and never ends."""
        self.closed = threading.Event()

    def add_key(self, key_id: str, algorithm: str = "ES256", **fields: Any) -> PrivateKey:
        """Publish a new key."""
        key: PrivateKey
        if algorithm.startswith("ES"):
            key = ec.generate_private_key(_CURVES[algorithm])
            public = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        elif algorithm == "EdDSA":
            key = ed25519.Ed25519PrivateKey.generate()
            public = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
        else:
            key = rsa.generate_private_key(65537, fields.pop("bits", 2048))
            public = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        self.keys[key_id] = key, {**public, "kid": key_id, "alg": algorithm, "use": "sig", **fields}
        return key

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return the claims of a valid token. A change to None leaves a claim out."""
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.url,
            "aud": AUDIENCE,
            "exp": now + 600,
            "iat": now,
            "sub": "42",
            "tenant": "acme",
            "scope": "openid amlog:read amlog:write",
        }
        return {name: value for name, value in (claims | changes).items() if value is not None}

    def token(self, key_id: str, **changes: Any) -> str:
        """Return a signed token."""
        key, public = self.keys[key_id]
        return jwt.encode(self.claims(**changes), key, public["alg"], {"kid": key_id})


@contextmanager
def running_issuer() -> Generator[Issuer]:
    """Serve the documents of an issuer on this machine."""
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.requests[self.path] += 1
            if issuer.is_slow.is_set():
                self._answer_slowly()
                return
            document = issuer.documents.get(self.path)
            status = 404 if document is None else issuer.status
            body = b"" if document is None else document()
            self.send_response(status)
            if status in {301, 302}:
                self.send_header("location", self.path)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _answer_slowly(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "1000000")
            self.end_headers()
            try:
                while not issuer.closed.wait(0.05):
                    self.wfile.write(b" ")
            except OSError:  # the client has gone
                return

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the names of the base class
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield issuer
    finally:
        issuer.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()
