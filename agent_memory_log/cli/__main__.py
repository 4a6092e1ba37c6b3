"""Runs ``python -m agent_memory_log.cli``, which does the same as ``amlog``."""

from __future__ import annotations

import sys

from agent_memory_log.cli.program import main

sys.exit(main())
