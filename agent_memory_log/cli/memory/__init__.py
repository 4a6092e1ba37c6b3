"""``amlog memory``: derived memory on the command line. One module a command; ``app`` registers them.

``options``, ``finding`` and ``views`` are what they share.
"""
