"""A processor with a file of credentials, on a server that knows its users by signed tokens."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import open_store
from agent_memory_log.processor.transport import Component, ProcessorSettings
from tests.processor.extracting import WordExtractor
from tests.processor.nats_server import NatsServer
from tests.processor.test_transport import until

nkeys: Any = importlib.import_module("nkeys")  # it has no types


class Key:
    """A pair of keys of the kind that a prefix names."""

    def __init__(self, prefix: int) -> None:
        self.seed: bytes = nkeys.encode_seed(os.urandom(32), prefix)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.name: str = self._pair.public_key.decode()

    def token(self, kind: str, subject: Key, **claims: object) -> str:
        """Return a token about a subject that this key signs."""
        payload: dict[str, Any] = {"iss": self.name, "sub": subject.name, "name": kind, "iat": 1_700_000_000}
        payload["nats"] = {"type": kind, "version": 2, **claims}
        payload["jti"] = base64.b32encode(hashlib.sha256(json.dumps(payload).encode()).digest()).decode().rstrip("=")
        text = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(payload)}"
        return f"{text}.{base64.urlsafe_b64encode(self._pair.sign(text.encode())).decode().rstrip('=')}"


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def credentials(token: str, user: Key) -> str:
    """Return the text of a file of credentials."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )


@pytest.mark.parametrize("broken", ["garbage", "", "-----BEGIN NATS USER JWT-----\nx\n"])
async def test_processor_connects_as_soon_as_its_credentials_are_right(tmp_path: Path, broken: str) -> None:
    operator, user = Key(nkeys.PREFIX_BYTE_OPERATOR), Key(nkeys.PREFIX_BYTE_USER)
    account, system = Key(nkeys.PREFIX_BYTE_ACCOUNT), Key(nkeys.PREFIX_BYTE_ACCOUNT)
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    storage = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    accounts = [
        f"{account.name}: {operator.token('account', account, limits={**limits, **storage, 'wildcards': True})}",
        f"{system.name}: {operator.token('account', system, limits={**limits, 'wildcards': True})}",
    ]
    settings = f"""
        operator: {operator.token("operator", operator)}
        system_account: {system.name}
        resolver: MEMORY
        resolver_preload: {{ {", ".join(accounts)} }}
    """
    file = tmp_path / "processor.creds"
    file.write_text(broken)
    with NatsServer(tmp_path / "nats", settings=settings) as server:
        async with open_store("memory:") as store:
            configured = ProcessorSettings(servers=(server.url,), credentials_file=str(file))
            component = Component(configured, store, extractor=WordExtractor())
            await component.initialise()
            await component.start()

            async def has_failed() -> bool:
                return "Error" in component.health().problems.get("connection", "")

            await until(has_failed)
            file.write_text(credentials(account.token("user", user, subs=-1, data=-1, payload=-1), user))

            async def is_connected() -> bool:
                return "connection" not in component.health().problems

            await until(is_connected)
            assert await component.stop()
