"""Ranks of the paper's tasks and measures of captions."""

from fishermix.measures.captions import caption_scores
from fishermix.measures.ranks import compare_recalls, figures, task_ranks

__all__ = ["caption_scores", "compare_recalls", "figures", "task_ranks"]
