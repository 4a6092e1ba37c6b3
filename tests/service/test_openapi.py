"""Tests that the OpenAPI document is valid. The campaigns test that the server does as it says."""

from __future__ import annotations

import msgspec
from openapi_spec_validator import OpenAPIV31SpecValidator

from agent_memory_log.service.openapi import document
from agent_memory_log.service.table import OPERATIONS
from tests.service.serving import serving


def test_the_document_is_valid_and_has_every_operation() -> None:
    with serving() as server:
        served = server.request("GET", "/openapi.json").json
    assert served == msgspec.json.decode(msgspec.json.encode(document()))
    OpenAPIV31SpecValidator(served).validate()
    assert set(served["paths"]) == {f"/v1/{name}" for name in OPERATIONS}
    for path in served["paths"].values():
        endpoint = path["post"]
        assert endpoint["summary"]
        assert set(endpoint["responses"]) == {"200", "default"}
