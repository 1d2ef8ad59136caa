"""Ranks, tasks and measures of captions."""
