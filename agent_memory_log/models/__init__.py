"""The interface between memory and a language model, and its adapters.

``OpenAIModel`` is in ``models.openai_chat``, because only that module needs the extra ``memory``.
"""

from agent_memory_log.models.port import Completion, ModelMessage, ModelPort
from agent_memory_log.models.scripted import ScriptedModel

__all__ = ["Completion", "ModelMessage", "ModelPort", "ScriptedModel"]
