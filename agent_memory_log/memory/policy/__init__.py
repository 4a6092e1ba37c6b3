"""The boundaries between what is proposed and what is stored: policy, execution, redaction, and the reading of JSON.

Public names only; each part has its module.
"""

from agent_memory_log.memory.policy.contracts import RetrievalIntent, read_candidates, read_intent
from agent_memory_log.memory.policy.rules import MemoryExecution, MemoryPolicy
from agent_memory_log.memory.policy.secrets import stop_secrets

__all__ = [
    "MemoryExecution",
    "MemoryPolicy",
    "RetrievalIntent",
    "read_candidates",
    "read_intent",
    "stop_secrets",
]
