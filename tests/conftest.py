"""Settings for the whole suite: Hypothesis times nothing, as a busy machine would then fail for no reason."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
