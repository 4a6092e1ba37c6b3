"""Keeps a memory in order: ageing, conflicts, consolidation, rounds of ``maintain``, consents, and reports."""
