"""Tests of the programs in examples/, which another folder of that name would hide."""
