"""Checks and repairs conversations. The providers' packages share this code."""
