"""Embedders for common models. Each module imports its dependencies when its class is first used."""
