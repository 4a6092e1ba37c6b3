"""Tests that the OpenAPI document is valid, and that the server does as it says for requests made from it."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import msgspec
import pytest
import schemathesis
import schemathesis.checks as general_checks
from hypothesis import HealthCheck, Phase, settings
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis.specs.openapi import checks as openapi_checks

from agent_memory_log.memory import MemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.service.openapi import document
from agent_memory_log.service.server import Limits
from agent_memory_log.service.table import OPERATIONS
from tests.service.serving import Serving, serving

EXAMPLES = 500 if "AMLOG_TORTURE" in os.environ else 5

_openapi: Any = schemathesis.openapi  # the types of this package are incomplete
_general: Any = general_checks
_checks: Any = openapi_checks

CHECKS = [
    _general.not_a_server_error,
    _checks.status_code_conformance,
    _checks.content_type_conformance,
    _checks.response_schema_conformance,
    _checks.negative_data_rejection,
]

# A stream of heads does not end.
SCHEMA = _openapi.from_dict(document()).exclude(path="/v1/runs/follow")


@pytest.fixture(scope="module")
def server() -> Generator[Serving]:
    limits = Limits(rate=100_000, burst=100_000)
    with serving(limits=limits, memory=lambda store: MemoryClient(store, extractor=RuleExtractor())) as server:
        yield server


def test_the_document_is_valid_and_has_every_operation(server: Serving) -> None:
    served = server.request("GET", "/openapi.json").json
    assert served == msgspec.json.decode(msgspec.json.encode(document()))
    OpenAPIV31SpecValidator(served).validate()
    assert set(served["paths"]) == {f"/v1/{name}" for name in OPERATIONS}
    for path in served["paths"].values():
        endpoint = path["post"]
        assert endpoint["summary"]
        assert set(endpoint["responses"]) == {"200", "default"}


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)
def keeps_to_the_document(case: Any, server: Serving) -> None:
    case.call_and_validate(base_url=server.url, checks=CHECKS)


test_the_server_keeps_to_its_document = SCHEMA.parametrize()(keeps_to_the_document)
