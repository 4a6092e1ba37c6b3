"""Finds records that cannot both be true, and computes the trust in a record. Pure functions of a subject's state."""
