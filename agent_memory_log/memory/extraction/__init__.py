"""Extractors: what finds in a run what is worth remembering. Public names only; each has its module."""

from agent_memory_log.memory.extraction.rules import RuleExtractor

__all__ = ["RuleExtractor"]
