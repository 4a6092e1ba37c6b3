"""Extractors: they read a run and propose memories. Exports the public names; each extractor has its own module."""

from agent_memory_log.memory.extraction.rules import RuleExtractor

__all__ = ["RuleExtractor"]
