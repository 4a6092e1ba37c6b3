"""The alias of a model leads to its settings. Without an entry for the alias, the rules extract."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from agent_memory_log import AssistantMessage, UserMessage, new_event
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory import RunSlice
from agent_memory_log.models.scripted import ScriptedModel
from agent_memory_log.processor.transport import ProcessorSettings, extractor_of


def settings(**assisted: object) -> ProcessorSettings:
    return ProcessorSettings.from_json(
        json.dumps({"extraction": {"llm_assisted": assisted}, "models": {"fast": {"name": "small-1"}}})
    )


def test_model_of_the_alias_is_asked() -> None:
    model = ScriptedModel([{"preferences": [], "facts": []}, {"episodes": []}])
    payloads = (UserMessage(message="I prefer Python."), AssistantMessage(message="Noted."))
    events = tuple(replace(new_event(payload), seq=seq) for seq, payload in enumerate(payloads, 1))
    with extractor_of(settings(max_tokens=77), model=model) as extractor:
        assert extractor.name == "model"
        extractor.extract(RunSlice("a", "r", {}, 0, events, ("user",), None))
    assert {(question.model, question.max_tokens) for question in model.asked} == {("small-1", 77)}


def test_model_needs_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InvalidArgument, match="OPENAI_API_KEY"), extractor_of(settings()):
        pass


@pytest.mark.parametrize(
    "without", [ProcessorSettings(), settings(enabled=False), settings(enabled=False, model="other")]
)
def test_rules_extract_without_a_model(without: ProcessorSettings) -> None:
    with extractor_of(without) as extractor:
        assert extractor.name == "rules"
