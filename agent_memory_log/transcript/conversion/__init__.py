"""Converts messages to events and back. The providers' packages share this code."""
