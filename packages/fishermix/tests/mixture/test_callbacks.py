"""Callbacks of scikit-learn 1.9: what they see of a fit, and how they end it."""

import warnings

import numpy as np
import pytest
from fishermix import BagOfWordsEncoder, FisherEncoder, GaussianMixture, HybridMixture
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

pytest.importorskip("sklearn.callback")
X = np.random.default_rng(0).normal(size=(300, 3))


class Recorder:
    """Records the tasks, and ends those that `stops` says."""

    def __init__(self, stops=lambda task, number: False):
        self.stops, self.tasks, self.likelihoods, self.open = stops, [], [], []

    def setup(self, estimator, context):
        self.tasks.append("setup")

    def teardown(self, estimator, context):
        self.tasks.append("teardown")
        assert not self.open

    def on_fit_task_begin(self, estimator, context, *, X=None, metadata=None):
        self.open.append(context)

    def on_fit_task_end(self, estimator, context, *, X=None, metadata=None, fitted_estimator=None):
        assert self.open.pop() is context
        self.tasks.append((context.estimator_name, context.task_name, context.task_id))
        if context.task_name == "iteration":
            weight = (metadata or {}).get("sample_weight")
            self.likelihoods.append(fitted_estimator.score(X, sample_weight=weight))
        return self.stops(context.task_name, context.task_id)


class PassedOn(Recorder):
    """A recorder that sees the parts of estimators, too."""

    max_propagation_depth = None


def count(recorder, name):
    return sum(task[1] == name for task in recorder.tasks if isinstance(task, tuple))


def test_they_see_every_start_and_iteration_with_an_estimator_that_scores():
    recorder = Recorder()
    weight = np.random.default_rng(1).uniform(size=len(X))
    mixture = HybridMixture(2, n_init=2, random_state=0, tol=1e-2).set_callbacks(recorder)
    fitted = mixture.fit(X, sample_weight=weight)
    assert recorder.tasks[0] == "setup"
    assert recorder.tasks[-1] == "teardown"
    assert recorder.tasks[-2] == ("HybridMixture", "fit", 0)
    assert count(recorder, "start") == 2
    assert count(recorder, "iteration") == len(recorder.likelihoods) > 2
    assert max(recorder.likelihoods) == pytest.approx(fitted.score(X, sample_weight=weight))
    alone = HybridMixture(2, n_init=2, random_state=0, tol=1e-2).fit(X, sample_weight=weight)
    np.testing.assert_array_equal(fitted.locations_, alone.locations_)


def test_one_that_returns_true_ends_the_start_without_a_warning():
    recorder = Recorder(stops=lambda task, number: task == "iteration" and number == 2)
    mixture = GaussianMixture(3, n_init=2, random_state=0, tol=1e-9).set_callbacks(recorder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixture.fit(X)
    assert mixture.n_iter_ == 3
    assert not mixture.converged_
    assert count(recorder, "start") == 2
    assert count(recorder, "iteration") == 6


def test_one_that_returns_true_after_a_start_ends_the_fit():
    recorder = Recorder(stops=lambda task, number: task == "start")
    GaussianMixture(3, n_init=4, random_state=0, tol=1e-2).set_callbacks(recorder).fit(X)
    assert count(recorder, "start") == 1


def test_one_that_fails_leaves_the_last_iteration_and_is_torn_down():
    class Failing(Recorder):
        def on_fit_task_end(self, estimator, context):
            self.open.pop()
            if context.task_id == 1 and context.task_name == "iteration":
                self.open.clear()
                raise RuntimeError

    failing = Failing()
    mixture = GaussianMixture(3, random_state=0, tol=1e-9).set_callbacks(failing)
    with pytest.raises(RuntimeError):
        mixture.fit(X)
    assert mixture.n_iter_ == 2
    assert failing.tasks == ["setup", "teardown"]


@pytest.mark.parametrize("encoder", [FisherEncoder, BagOfWordsEncoder])
def test_encoders_and_pipelines_pass_them_on_to_the_mixture(encoder):
    recorder = PassedOn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline = make_pipeline(StandardScaler(), encoder(GaussianMixture(2, random_state=0, tol=1e-2)))
        pipeline.set_callbacks(recorder).fit_transform(X[:90])
    names = {task[0] for task in recorder.tasks if isinstance(task, tuple)}
    assert {"Pipeline", "GaussianMixture"} <= names
    assert count(recorder, "iteration") > 0
    assert count(recorder, "iteration") == len(recorder.likelihoods)


def test_the_clone_in_an_encoder_has_those_of_the_mixture():
    own = Recorder()
    mixture = GaussianMixture(2, random_state=0).set_callbacks(own)
    FisherEncoder(clone(mixture)).fit([X])
    assert count(own, "iteration") > 0


def test_the_progress_bar_of_scikit_learn(capsys):
    pytest.importorskip("rich")
    from sklearn.callback import ProgressBar

    GaussianMixture(2, random_state=0, tol=1e-2).set_callbacks(ProgressBar()).fit(X)
    assert "GaussianMixture" in capsys.readouterr().out
