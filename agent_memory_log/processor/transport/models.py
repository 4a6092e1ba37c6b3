"""The extractor of a processor: a model that its configuration names by an alias, or the rules."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from msgspec.structs import replace

from agent_memory_log.memory import Extractor
from agent_memory_log.models.port import ModelPort
from agent_memory_log.processor.transport.configuration import ProcessorSettings


@contextmanager
def extractor_of(settings: ProcessorSettings, *, model: ModelPort | None = None) -> Generator[Extractor]:
    """Open the extractor of the settings.

    It asks the model that ``models`` has for the alias ``extraction.llm_assisted.model``. If ``models`` is
    empty, or if no facts are extracted, it is the rules, which ask no model.

    Args:
        settings: The settings.
        model: The model to ask instead of opening that of the settings.

    Raises:
        InvalidArgument: The key of the model is missing or invalid, or the extra ``memory`` is not installed.
    """
    assisted = settings.extraction.llm_assisted
    model_settings = settings.models.get(assisted.model)
    if not assisted.enabled or (model_settings is None and model is None):
        from agent_memory_log.memory.extraction import RuleExtractor  # noqa: PLC0415  # it compiles its patterns

        yield RuleExtractor()
        return
    from agent_memory_log.memory.extraction.model import ModelExtractor  # noqa: PLC0415  # needs the extra memory
    from agent_memory_log.memory.policy.settings import ExtractionSettings, MemorySettings  # noqa: PLC0415  # as above
    from agent_memory_log.models.openai_chat import OpenAIModel  # noqa: PLC0415  # as above
    from agent_memory_log.models.settings import ModelSettings  # noqa: PLC0415  # as above

    limits = replace(model_settings or ModelSettings(), max_tokens=assisted.max_tokens)
    # The context is lost after the compaction, so a short run is read too.
    memory = MemorySettings(model=limits, extraction=ExtractionSettings(min_messages=1))
    if model is not None:
        yield ModelExtractor(model, memory)
        return
    with OpenAIModel(limits) as opened:
        yield ModelExtractor(opened, memory)
