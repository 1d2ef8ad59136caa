"""Ranks of the paper's tasks and measures of captions."""

from typing import TYPE_CHECKING

from fishermix import lazy

if TYPE_CHECKING:
    from fishermix.evaluation.captions import bleu as bleu
    from fishermix.evaluation.captions import caption_scores as caption_scores
    from fishermix.evaluation.captions import cider_d as cider_d
    from fishermix.evaluation.captions import rouge_l as rouge_l
    from fishermix.evaluation.ranks import annotation_ranks as annotation_ranks
    from fishermix.evaluation.ranks import figures as figures
    from fishermix.evaluation.ranks import recall_sum as recall_sum
    from fishermix.evaluation.ranks import search_ranks as search_ranks
    from fishermix.evaluation.ranks import similarity_ranks as similarity_ranks
    from fishermix.evaluation.ranks import summary as summary
    from fishermix.evaluation.ranks import task_ranks as task_ranks

_MODULE_OF = {
    "annotation_ranks": "ranks",
    "bleu": "captions",
    "caption_scores": "captions",
    "cider_d": "captions",
    "figures": "ranks",
    "recall_sum": "ranks",
    "rouge_l": "captions",
    "search_ranks": "ranks",
    "similarity_ranks": "ranks",
    "summary": "ranks",
    "task_ranks": "ranks",
}
__all__ = [
    "annotation_ranks",
    "bleu",
    "caption_scores",
    "cider_d",
    "figures",
    "recall_sum",
    "rouge_l",
    "search_ranks",
    "similarity_ranks",
    "summary",
    "task_ranks",
]
__getattr__ = lazy.export(__name__, _MODULE_OF)
