"""Maintenance, forgetting, erasure, export and import."""
