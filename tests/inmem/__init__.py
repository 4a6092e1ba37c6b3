"""Tests of the backend inmem."""
