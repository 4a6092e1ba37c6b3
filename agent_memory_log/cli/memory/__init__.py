"""The commands of ``amlog memory``. Each command has its own module, and ``app`` registers them.

The commands share ``options``, ``finding``, ``table`` and ``views``.
"""
