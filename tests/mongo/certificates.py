"""Creates certificates for TLS servers. The tests have their own certificate authority."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Certificates:
    """The paths of an authority's certificate, a server's certificate and its key, in PEM format."""

    authority: Path
    """The certificate of the authority, for the client option ``tlsCAFile``."""
    certificate: Path
    """The certificate chain of the server."""
    key: Path
    """The private key of the server."""


def make_certificates(folder: Path, *names: str) -> Certificates:
    """Create an authority and a server's certificate for ``names``, by default ``127.0.0.1`` and ``localhost``."""
    folder.mkdir(parents=True, exist_ok=True)
    certificates = Certificates(folder / "authority.pem", folder / "certificate.pem", folder / "key.pem")
    authority = trustme.CA()
    server = authority.issue_cert(*names or ("127.0.0.1", "localhost"))
    authority.cert_pem.write_to_path(certificates.authority)
    server.private_key_pem.write_to_path(certificates.key)
    for number, pem in enumerate(server.cert_chain_pems):
        pem.write_to_path(certificates.certificate, append=number > 0)
    return certificates
