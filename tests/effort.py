"""The amount of work of a test: a little in ``make test``, and all of it in the campaigns of ``make torture``."""

from __future__ import annotations

import os

IS_CAMPAIGN = "AMLOG_TORTURE" in os.environ

EXAMPLES = 250 if IS_CAMPAIGN else 25
"""The number of examples that Hypothesis tries for a test. A test with a wide choice tries several times as many."""
