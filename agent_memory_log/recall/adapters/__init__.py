"""Embedders for common models; each module imports what it needs when its class is first used."""
