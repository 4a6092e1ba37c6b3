"""The configuration has the keys and the defaults of its contract, names each wrong key, and maps loops safely."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory import Principal
from agent_memory_log.processor import Loop
from agent_memory_log.processor.transport import ProcessorSettings

CONTRACT: dict[str, Any] = {
    "extraction": {
        "llm_assisted": {
            "enabled": True,
            "model": "fast",
            "trigger_iteration_interval": 5,
            "trigger_context_threshold": 0.8,
            "max_tokens": 1000,
        }
    },
    "hydration": {
        "pre_task": {
            "enabled": True,
            "max_context_tokens": 2000,
            "include_decisions": True,
            "include_files": True,
        },
        "post_compaction": {"enabled": True, "reconstruct_from_checkpoint": True, "max_recovery_tokens": 1500},
    },
    "checkpoint": {"enabled": True, "storage_bucket": "AGENT_MEMORY_CHECKPOINTS", "retention_days": 7},
    "stream_name": "AGENT",
    "consumer_name_suffix": "",
    "ports": {
        "compaction_events": "agent.context.compaction.>",
        "hydrate_requests": "memory.hydrate.request.*",
        "entity_states": "ENTITY_STATES",
        "injected_context": "agent.context.injected.{loop_id}",
        "graph_mutations": "graph.mutation.{loop_id}",
        "checkpoint_events": "memory.checkpoint.created.{loop_id}",
    },
}


def settings(**values: object) -> ProcessorSettings:
    return ProcessorSettings.from_json(json.dumps(values))


def route(loop: Mapping[str, object], loop_id: str, user_id: str | None = None) -> Loop | None:
    return settings(loops=[loop]).route(loop_id, user_id)


def test_defaults_are_those_of_the_contract() -> None:
    defaults = msgspec.to_builtins(ProcessorSettings())
    assert {key: defaults[key] for key in CONTRACT} == CONTRACT
    assert ProcessorSettings.from_json(json.dumps(CONTRACT)) == ProcessorSettings()


def test_schema_describes_each_setting() -> None:
    schema = ProcessorSettings.json_schema()
    definitions = schema["$defs"]
    for name in ("ProcessorSettings", "LlmAssisted", "PreTask", "PostCompaction", "CheckpointSettings", "Ports"):
        for key, setting in definitions[name]["properties"].items():
            if "$ref" not in setting:
                assert setting["description"], key
                assert setting["x-level"] in ("basic", "advanced"), key
                assert "type" in setting or "anyOf" in setting, key
                assert "default" in setting or key == "models", key


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"unknown": 1}, "unknown"),
    ({"stream_name": ""}, "stream_name"),
    ({"stream_name": "A.B"}, "stream_name"),
    ({"stream_name": "A\n"}, "stream_name"),
    ({"consumer_name_suffix": "a b"}, "consumer_name_suffix"),
    ({"extraction": {"llm_assisted": {"enabled": 1}}}, "extraction.llm_assisted.enabled"),
    ({"extraction": {"llm_assisted": {"trigger_iteration_interval": -1}}}, "trigger_iteration_interval"),
    ({"extraction": {"llm_assisted": {"trigger_context_threshold": 1.5}}}, "trigger_context_threshold"),
    ({"extraction": {"llm_assisted": {"max_tokens": 0}}}, "extraction.llm_assisted.max_tokens"),
    ({"hydration": {"pre_task": {"max_context_tokens": "9"}}}, "hydration.pre_task.max_context_tokens"),
    ({"hydration": {"post_compaction": {"max_recovery_tokens": 0}}}, "hydration.post_compaction.max_recovery"),
    ({"checkpoint": {"retention_days": 0}}, "checkpoint.retention_days"),
    ({"checkpoint": {"storage_bucket": "a b"}}, "checkpoint.storage_bucket"),
    ({"ports": {"injected_context": "agent.context.injected"}}, "ports.injected_context"),
    ({"ports": {"graph_mutations": "graph.>.{loop_id}"}}, "ports.graph_mutations"),
    ({"ports": {"checkpoint_events": "memory.x{loop_id}"}}, "ports.checkpoint_events"),
    ({"ports": {"compaction_events": "agent.>.x"}}, "ports.compaction_events"),
    ({"ports": {"hydrate_requests": "agent..x"}}, "ports.hydrate_requests"),
    ({"ports": {"compaction_events": "agent.*.events"}}, "ports.compaction_events: a subject whose last token"),
    ({"ports": {"compaction_events": "agent.>"}}, "ports.injected_context: a subject that ports.compaction_events"),
    ({"ports": {"hydrate_requests": "memory.checkpoint.*.*"}}, "ports.checkpoint_events: a subject that"),
    ({"ports": {"entity_states": "AGENT_MEMORY_CHECKPOINTS"}}, "checkpoint.storage_bucket"),
    ({"ports": {"other": "x"}}, "ports.other"),
    ({"extraction": {"llm_assisted": {"model": "smart"}}}, "extraction.llm_assisted.model"),
    ({"models": {"smart": {"name": "m"}}}, "extraction.llm_assisted.model: an alias of models, which has smart"),
    ({"loops": [{"agent": "a", "run": "", "scopes": {"user": "1"}}]}, "loops[0]: run must be"),
    ({"models": {"fast": {"timeout_seconds": -1}}}, "models.fast.timeout_seconds"),
    ({"models": {"fast": {"url": "x"}}}, "models.fast.url"),
    ({"models": {"fast": 1}}, "models.fast"),
    ({"loops": [{"agent": "a"}]}, "loops"),
    ({"loops": [{"agent": "a", "scopes": {}}]}, "loops"),
    ({"loops": [{"agent": "{agent}", "scopes": {"user": "1"}}]}, "loops[0].agent"),
    ({"loops": [{"agent": "a", "tenant": "{user_id}", "scopes": {"user": "1"}}]}, "loops[0].tenant"),
    ({"loops": [{"agent": "@memory/a/user/1", "scopes": {"user": "1"}}]}, "loops[0]"),
    ({"loops": [{"agent": "a", "scopes": {"user": " 1"}}]}, "loops[0]"),
    ({"servers": []}, "servers"),
    ({"servers": ["localhost:4222"]}, "servers"),
    ({"concurrency": 0}, "concurrency"),
    ({"ack_seconds": 0}, "ack_seconds"),
    ({"stop_seconds": 0}, "stop_seconds"),
]


@pytest.mark.parametrize(("values", "key"), WRONG)
def test_wrong_settings_are_named(values: dict[str, object], key: str) -> None:
    with pytest.raises(InvalidArgument, match="invalid settings") as caught:
        settings(**values)
    assert key in str(caught.value)


def test_text_that_is_not_json_is_refused() -> None:
    for text in (b"{", b"[]", b"\xff"):
        with pytest.raises(InvalidArgument, match="invalid settings"):
            ProcessorSettings.from_json(text)


def test_models_have_aliases() -> None:
    models = settings(models={"fast": {"name": "small-1", "timeout_seconds": 5}}).models
    assert (models["fast"].name, models["fast"].timeout_seconds) == ("small-1", 5.0)


def test_loop_has_its_run_and_principal() -> None:
    loop = {
        "loop_id": "web-*",
        "agent": "coder",
        "run": "run-{loop_id}",
        "tenant": "acme",
        "scopes": {"user": "{user_id}"},
    }
    assert route(loop, "web-1", "42") == Loop("coder", "run-web-1", Principal("acme", {"user": "42"}))
    assert route(loop, "web-1") is None, "its user is unknown"
    assert route(loop, "cli-1", "42") is None
    assert route(loop, "web-1", " 42") is None, "an id that could be mistaken for another one"
    long = {**loop, "run": "{loop_id}-{user_id}", "scopes": {"team": "t"}}
    assert route(long, "web-1", "u" * 512) is None, "the id of its run is too long"
    assert route({**loop, "scopes": {"user": "7"}}, "web-1") == Loop(
        "coder", "run-web-1", Principal("acme", {"user": "7"})
    )


def test_first_entry_that_matches_counts() -> None:
    loops = [
        {"loop_id": "a", "agent": "first", "scopes": {"user": "{user_id}"}},
        {"loop_id": "*", "agent": "second", "scopes": {"user": "1"}},
    ]
    configured = settings(loops=loops)
    assert configured.route("a", None) is None, "the next entry must not give it another memory"
    routed = configured.route("b", None)
    assert routed is not None
    assert routed.agent == "second"


def test_loop_id_cannot_name_an_agent_of_the_library() -> None:
    loop = {"agent": "{loop_id}", "scopes": {"user": "1"}}
    assert route(loop, "@memory") is None
    assert route(loop, "conversations/default/user/2") is None
    assert route(loop, "coder") is not None


def test_only_stars_are_wildcards() -> None:
    loop = {"loop_id": "a?[bc]*", "agent": "x", "scopes": {"user": "1"}}
    assert route(loop, "a?[bc]1") is not None
    assert route(loop, "axb1") is None


def test_placeholders_are_filled_once() -> None:
    loop = {"agent": "x", "run": "{loop_id}", "scopes": {"user": "{user_id}"}}
    routed = route(loop, "{user_id}", "{loop_id}")
    assert routed == Loop("x", "{user_id}", Principal("default", {"user": "{loop_id}"}))
