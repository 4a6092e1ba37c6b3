"""The contract test of the server with many more requests."""

from __future__ import annotations

from tests.service.test_openapi import server, test_the_server_keeps_to_its_document

__all__ = ["server", "test_the_server_keeps_to_its_document"]
