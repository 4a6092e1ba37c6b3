"""Counts the processor instructions of the main operations, and compares them with the stored counts."""
