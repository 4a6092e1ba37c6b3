"""Runs from one place to another: JSONL, copies, forks, imports, and the verification of a whole store."""
