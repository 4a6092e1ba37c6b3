"""Moves runs between stores and files (JSONL, copies, forks, imports), and verifies whole stores."""
