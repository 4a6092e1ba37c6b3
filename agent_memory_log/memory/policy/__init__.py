"""The boundaries between what is proposed and what is stored: policy, execution, redaction, and the reading of JSON.
What an answer says that it rests on is audited here too.

Public names only; each part has its module.
"""

from agent_memory_log.memory.policy.auditing import AnswerAudit, Verifier, audit_answer
from agent_memory_log.memory.policy.contracts import RetrievalIntent, read_candidates, read_intent
from agent_memory_log.memory.policy.rules import MemoryExecution, MemoryPolicy
from agent_memory_log.memory.policy.secrets import stop_secrets

__all__ = [
    "AnswerAudit",
    "MemoryExecution",
    "MemoryPolicy",
    "RetrievalIntent",
    "Verifier",
    "audit_answer",
    "read_candidates",
    "read_intent",
    "stop_secrets",
]
