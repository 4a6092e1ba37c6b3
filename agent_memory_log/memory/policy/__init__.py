"""The rules for memories: policy, execution, redaction, the JSON contracts of models, and the audit of answers."""

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
