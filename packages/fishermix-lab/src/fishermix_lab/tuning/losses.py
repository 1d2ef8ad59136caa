"""What a tuning minimizes: functions of scores.

Scores are cosines times a factor. `possible` says which answers count: an answer that may be right although
it is not known to be, or that comes from another source, is neither right nor wrong.
"""

from __future__ import annotations

import torch
from torch.nn import functional

NEVER = -1e4  # a score that no answer has


def contrast(
    scores: torch.Tensor, right: torch.Tensor, possible: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """InfoNCE with one right answer a query: mean of -log of its share in exp(scores) of all possible ones.

    scores, possible : (queries, answers)
    right : (queries,) the column of the right answer
    weights : (queries,)
    """
    rows = torch.arange(len(scores))
    allowed = possible.clone()
    allowed[rows, right] = True
    found = functional.cross_entropy(scores.masked_fill(~allowed, NEVER), right, reduction="none")
    return (weights * found).sum() / weights.sum()


def contrast_many(scores: torch.Tensor, right: torch.Tensor, wrong: torch.Tensor) -> torch.Tensor:
    """InfoNCE with several right answers a query: each is compared with all wrong ones, not with the others.

    right, wrong : bool (queries, answers); an answer may be neither
    Queries without a right answer do not count; each of the others counts the same.
    """
    of_wrong = scores.masked_fill(~wrong, NEVER).logsumexp(1, keepdim=True)
    found = functional.softplus(of_wrong - scores) * right
    counts = right.sum(1)
    known = counts > 0
    if not known.any():
        return scores.sum() * 0.0
    return (found.sum(1)[known] / counts[known]).mean()
