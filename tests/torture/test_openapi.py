"""Calls the server with many requests that are made from its OpenAPI document: it does as the document says."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
import schemathesis
import schemathesis.checks as general_checks
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi import checks as openapi_checks

from agent_memory_log.memory import MemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.service.openapi import document
from agent_memory_log.service.server import Limits
from tests.service.serving import Serving, serving

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


@settings(
    max_examples=200,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)
def keeps_to_the_document(case: Any, server: Serving) -> None:
    case.call_and_validate(base_url=server.url, checks=CHECKS)


test_the_server_keeps_to_its_document = SCHEMA.parametrize()(keeps_to_the_document)
