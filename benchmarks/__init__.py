"""The costs of this library, as ratios to a floor: ``python -m benchmarks``."""
