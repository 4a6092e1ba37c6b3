"""The store of a server, for the URLs ``https:`` and ``http:``. ``backend.py`` is its entry point."""
