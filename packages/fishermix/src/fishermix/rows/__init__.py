"""Rows of numbers in memory, in files and in streams, read block by block."""
