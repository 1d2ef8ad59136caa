"""Naive versions that the tests compare with."""

import numpy as np


def weighted_median(x, weight):
    """First sorted value (D,) at which half of the weight (n,) is reached, of the columns of x (n, D)."""
    order = np.argsort(x, axis=0, kind="stable")
    reached = np.cumsum(weight[order], axis=0)
    first = (reached >= 0.5 * reached[-1:]).argmax(axis=0)
    return np.take_along_axis(x, np.take_along_axis(order, first[None], 0), 0)[0]


def fit_family(family, x, weight, steps=200):
    """Weighted maximum-likelihood location and scale, each (D,), of the columns of x (n, D)."""
    total = weight.sum()
    if family.name == "laplace":
        location = weighted_median(x, weight)
        return location, weight @ np.abs(x - location) / total
    location = weight @ x / total
    scale = np.sqrt(weight @ (x - location) ** 2 / total)
    for _ in range(steps):
        step = weight[:, None] * family.irls_weight((x - location) / scale)
        location = (step * x).sum(0) / step.sum(0)
        scale = np.sqrt((step * (x - location) ** 2).sum(0) / total)
    return location, scale


def run_iteration(state, source):
    """One iteration of EM."""
    from fishermix.mixture.em import FitProgress, run_em

    return next(run_em(FitProgress(state), source, state.iteration + 1, tol=0, working_memory=256))


def interrupt_em(monkeypatch, act):
    """Call act(state) before every iteration of EM."""
    from fishermix.mixture import em

    run = em.run_iteration

    def run_iteration(state, *others):
        act(state)
        return run(state, *others)

    monkeypatch.setattr(em, "run_iteration", run_iteration)
