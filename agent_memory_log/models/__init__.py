"""The model port: what memory asks of a language model, and the adapters that ask a real one.

``OpenAIModel`` needs the extra ``memory`` and stands in ``model.openai_chat``, so that nothing else does.
"""

from agent_memory_log.models.port import Completion, ModelMessage, ModelPort
from agent_memory_log.models.scripted import ScriptedModel

__all__ = ["Completion", "ModelMessage", "ModelPort", "ScriptedModel"]
