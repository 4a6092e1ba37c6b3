"""Makes certificates for TLS servers, signed by an authority of the test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM format."""

    authority: Path
    """For clients: ``tlsCAFile``."""
    certificate: Path
    """For the server: its chain."""
    key: Path
    """For the server: its private key."""


def make_certificates(folder: Path, *names: str) -> Certificates:
    """Make an authority and a server's certificate for ``names`` (by default ``127.0.0.1`` and ``localhost``)."""
    folder.mkdir(parents=True, exist_ok=True)
    certificates = Certificates(folder / "authority.pem", folder / "certificate.pem", folder / "key.pem")
    authority = trustme.CA()
    server = authority.issue_cert(*names or ("127.0.0.1", "localhost"))
    authority.cert_pem.write_to_path(certificates.authority)
    server.private_key_pem.write_to_path(certificates.key)
    for number, pem in enumerate(server.cert_chain_pems):
        pem.write_to_path(certificates.certificate, append=number > 0)
    return certificates
