"""Long tests: thousands of kills and corruptions, and growth on large inputs. ``make torture`` runs them.

Each module is one campaign and takes a few minutes on two cores.
"""
