"""The HTTP server: every operation of a store and of its memory, for other machines and other languages.

It needs the extra ``server``. ``amlog serve`` runs it.
"""

from __future__ import annotations

from agent_memory_log.service.limits import Limits
from agent_memory_log.service.server.app import create_app
from agent_memory_log.service.server.running import loop_factory, serve

__all__ = ["Limits", "create_app", "loop_factory", "serve"]
