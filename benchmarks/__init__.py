"""What this library costs, as ratios to the floor under it: ``python -m benchmarks``."""
