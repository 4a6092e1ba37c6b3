"""Tests of the settings: their defaults, JSON, environment variables, and refusals of invalid values."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import asdict

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory.extraction.messages import MIN_MESSAGES
from agent_memory_log.memory.policy import MemoryExecution, MemoryPolicy
from agent_memory_log.memory.policy.contracts import DEFAULT_TOP_K, MAX_QUERY, MAX_TOP_K
from agent_memory_log.memory.policy.rules import MAX_CAPTURE, MAX_VALUE
from agent_memory_log.memory.policy.settings import Budgets, MemorySettings, PolicySettings
from agent_memory_log.memory.stream.context import INDEX_BYTES
from agent_memory_log.models.settings import ModelSettings


def test_defaults_match_the_documentation() -> None:
    settings = MemorySettings()
    assert asdict(settings.budgets) == {
        "max_capture_items": 6,
        "max_top_k": 6,
        "default_top_k": 4,
        "max_query_chars": 240,
        "max_answer_chars": 700,
        "max_value_chars": 120,
        "max_seconds": 25.0,
    }
    assert asdict(settings.extraction) == {"min_messages": 4, "message_chars": 500, "last_messages": 20}
    assert settings.model.timeout_seconds == 60
    assert asdict(settings.upkeep) == {"max_keyed": 1_000, "weak_below": 0.1, "unused_days": 60}


def test_defaults_match_the_constants_of_the_modules() -> None:
    settings = MemorySettings()
    assert settings.memory_policy() == MemoryPolicy()
    assert settings.memory_execution() == MemoryExecution()
    assert settings.extraction.min_messages == MIN_MESSAGES
    budgets = settings.budgets
    assert settings.search.index_bytes == INDEX_BYTES
    assert (budgets.max_capture_items, budgets.max_value_chars) == (MAX_CAPTURE, MAX_VALUE)
    assert (budgets.max_query_chars, budgets.max_top_k, budgets.default_top_k) == (MAX_QUERY, MAX_TOP_K, DEFAULT_TOP_K)


def test_settings_are_read_from_json_and_written_back() -> None:
    text = '{"budgets": {"max_seconds": 10}, "policy": {"allowed_keys": ["language"]}, "upkeep": {"max_keyed": null}}'
    settings = MemorySettings.from_json(text)
    assert settings.budgets.max_seconds == 10
    assert settings.memory_policy().allowed_keys == frozenset({"language"})
    assert settings.upkeep.max_keyed is None
    assert MemorySettings.from_json(msgspec.json.encode(settings)) == settings
    assert MemorySettings.from_json(b"{}") == MemorySettings()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "not JSON"),
        ("[]", "the settings"),
        ('{"budget": {}}', "budget"),
        ('{"budgets": {"seconds": 1}}', "budgets.seconds"),
        ('{"budgets": {"max_top_k": 0}}', "budgets.max_top_k"),
        ('{"budgets": {"max_top_k": true}}', "budgets.max_top_k"),
        ('{"budgets": {"max_top_k": "6"}}', "budgets.max_top_k"),
        ('{"budgets": {"max_top_k": 1.5}}', "budgets.max_top_k"),
        ('{"budgets": {"max_seconds": NaN}}', "budgets.max_seconds"),
        ('{"budgets": {"max_seconds": Infinity}}', "budgets.max_seconds"),
        ('{"budgets": {"max_seconds": -1}}', "budgets.max_seconds"),
        ('{"model": {"base_url": "localhost"}}', "model.base_url"),
        ('{"policy": {"allowed_keys": "language"}}', "policy.allowed_keys"),
        ('{"policy": {"allowed_keys": [""]}}', "policy.allowed_keys"),
        ('{"upkeep": {"unused_days": NaN}}', "upkeep.unused_days"),
        ('{"upkeep": {"unused_days": Infinity}}', "upkeep.unused_days"),
        ('{"upkeep": {"weak_below": NaN}}', "upkeep.weak_below"),
        ('{"budgets": 3}', "budgets"),
    ],
)
def test_invalid_settings_are_refused_by_name(text: str, expected: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"\b{expected}"):
        MemorySettings.from_json(text)


def test_error_names_every_invalid_setting() -> None:
    text = '{"model": {"attempts": 0, "name": 3}, "budgets": {"seconds": 1}, "upkeep": []}'
    with pytest.raises(InvalidArgument) as caught:
        MemorySettings.from_json(text)
    for path in ("model.attempts", "model.name", "budgets.seconds", "upkeep"):
        assert f"{path}: " in str(caught.value)


def test_settings_created_in_code_are_checked() -> None:
    with pytest.raises(InvalidArgument, match="max_top_k"):
        Budgets(max_top_k=0)
    with pytest.raises(InvalidArgument, match="budgets"):
        MemorySettings(budgets=cast("Any", 3))
    names = cast("Any", ["language"])
    assert hash(PolicySettings(allowed_keys=names)) == hash(PolicySettings(allowed_keys=frozenset(names)))


def test_model_settings_ignore_other_memory_variables() -> None:
    environment = {"OPENAI_MODEL": "4", "AMLOG_MEMORY_MODEL_ATTEMPTS": "5", "AMLOG_MEMORY_BUDGETS_MAX_TOP_K": "six"}
    assert ModelSettings.from_environment(environment) == ModelSettings(name="4", attempts=5)
    with pytest.raises(InvalidArgument, match="AMLOG_MEMORY_MODEL_ATTEMPT "):
        ModelSettings.from_environment({"AMLOG_MEMORY_MODEL_ATTEMPT": "5"})


def test_environment_gives_the_same_settings_as_json() -> None:
    settings = MemorySettings.from_environment(
        {
            "OPENAI_MODEL": "small",
            "OPENAI_BASE_URL": "http://localhost:8080/v1",
            "OPENAI_TIMEOUT_SECONDS": "7",
            "AMLOG_MEMORY_MODEL_ATTEMPTS": "5",
            "AMLOG_MEMORY_BUDGETS_MAX_SECONDS": " 2.5 ",
            "AMLOG_MEMORY_EXECUTION_DENIED_KEYS": '["declared_tier"]',
            "AMLOG_MEMORY_UPKEEP_MAX_KEYED": "null",
            "AMLOG_MEMORY_POLICY_ALLOWED_KEYS": "",
            "AMLOG_STORE": "sqlite:///runs.db",
            "PATH": "/usr/bin",
        }
    )
    assert settings == MemorySettings.from_json(
        json.dumps(
            {
                "model": {"name": "small", "base_url": "http://localhost:8080/v1", "timeout_seconds": 7, "attempts": 5},
                "budgets": {"max_seconds": 2.5},
                "execution": {"denied_keys": ["declared_tier"]},
                "upkeep": {"max_keyed": None},
            }
        )
    )
    assert settings.memory_execution().denied_keys == {"declared_tier"}


def test_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMLOG_MEMORY_BUDGETS_MAX_TOP_K", "3")
    assert MemorySettings.from_environment().budgets.max_top_k == 3


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("AMLOG_MEMORY_BUDGETS_MAX_SECOND", "1"),
        ("AMLOG_MEMORY_MODEL_NAME", "small"),
        ("AMLOG_MEMORY_BUDGETS_MAX_TOP_K", "six"),
    ],
)
def test_invalid_variable_is_refused_by_name(variable: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{variable} "):
        MemorySettings.from_environment({variable: text})


def test_error_for_a_wrong_type_names_the_setting() -> None:
    with pytest.raises(InvalidArgument, match=r"model\.timeout_seconds"):
        MemorySettings.from_environment({"OPENAI_TIMEOUT_SECONDS": '"soon"'})


def test_settings_cannot_be_changed() -> None:
    settings: Any = MemorySettings()
    with pytest.raises(AttributeError, match="immutable"):
        settings.budgets.max_seconds = 3
    with pytest.raises(AttributeError, match="immutable"):
        settings.budgets = None
    assert hash(settings) == hash(MemorySettings())


def test_schema_is_json_and_describes_every_setting() -> None:
    schema = json.loads(json.dumps(MemorySettings.json_schema()))
    groups = schema["$defs"]
    memory_schema = groups.pop("MemorySettings")
    assert memory_schema["properties"].keys() == {
        "model",
        "budgets",
        "extraction",
        "policy",
        "execution",
        "upkeep",
        "search",
    }
    for group in groups.values():
        for name, setting in group["properties"].items():
            assert setting["description"], name
            assert "default" in setting, name
