"""Training on the toy space: it learns, it resumes where it was killed, the paper's recipe works."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import toy
from fishermix.saved import read_kind
from fishermix_lab.captions.recipe import CAPTION_RECIPES, DEFAULT, PAPER, CaptionRecipe
from refuses import refuses

torch = pytest.importorskip("torch")
from fishermix_lab.captions import trainer as module  # noqa: E402
from fishermix_lab.captions.network import CaptionNetwork, Dropout, cross_entropy  # noqa: E402
from fishermix_lab.captions.trainer import Training  # noqa: E402

SMALL = replace(DEFAULT, units=24, min_count=2, batch_size=16, epochs=4, patience=9, recurrent_dropout=0.1)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def training(recipe: CaptionRecipe = SMALL, folder=None, n_images=60, **options) -> Training:
    return Training(
        toy.captions(n_images), toy.captions(20, 1), toy.encode_text, recipe, folder=folder, **options
    )


@pytest.mark.slow
def test_it_learns_to_describe_new_images():
    learned = training(replace(SMALL, units=48, epochs=12, learning_rate=1e-2, average=0.9), n_images=200)
    captioner = learned.run()
    losses = [record["dev_loss"] for record in learned.position.history]
    assert losses[-1] < 0.5 * losses[0]
    dev = toy.captions(20, 1)
    right = [
        sentence in [reference.lower().rstrip(".") for reference in references]
        for sentence, references in zip(captioner.caption(dev.points, beam=3), dev.references())
    ]
    assert np.mean(right) > 0.9


def test_fine_tuning_starts_from_a_captioner_and_keeps_its_words():
    first = training()
    start = first.run()
    loss = first.position.history[first.position.best_epoch - 1]["dev_loss"]
    more = training(replace(SMALL, epochs=2, choose_by="loss", seed=1), start=start)
    assert more.compute_dev_loss() == pytest.approx(loss, rel=1e-5)
    tuned = more.run()
    assert tuned.vocabulary.words == start.vocabulary.words
    np.testing.assert_array_equal(tuned.points, start.points)
    assert more.position.history[-1]["dev_loss"] < loss


def test_a_checkpoint_belongs_to_the_words_of_the_captioner(tmp_path):
    start = training().run()
    training(start=start, folder=tmp_path)._save()
    training(start=start, folder=tmp_path)
    other = training(n_images=30).run()
    assert other.vocabulary.words != start.vocabulary.words
    with refuses("other_training"):
        training(start=other, folder=tmp_path)


def test_a_captioner_that_cannot_be_tuned_is_refused():
    start = training().run()
    with refuses("wrong_shape"):
        training(replace(SMALL, units=8), start=start)


def losses(run: Training) -> list[float]:
    return [record[name] for record in run.position.history for name in ("train_loss", "dev_loss", "cider_d")]


def same(one: Training, other: Training) -> None:
    np.testing.assert_allclose(losses(one), losses(other), rtol=1e-6)
    for name, value in one.network.state_dict().items():
        torch.testing.assert_close(other.network.state_dict()[name], value, rtol=1e-5, atol=1e-7)


class Killed(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [SMALL, replace(PAPER, units=24, min_count=2, batch_size=16, epochs=4)])
@pytest.mark.parametrize("steps", [3, 8, 13])
def test_resumed_equals_uninterrupted(tmp_path, monkeypatch, recipe, steps):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    whole = training(recipe)
    whole.run()

    first = training(recipe, tmp_path / "c")
    original, taken = first._step, []

    def killed_after(*arguments):
        if len(taken) == steps:
            raise Killed
        taken.append(1)
        original(*arguments)

    first._step = killed_after
    with pytest.raises(Killed):
        first.run()
    second = training(recipe, tmp_path / "c")
    assert second.position.epoch * second.steps_per_epoch + second.position.step == steps
    resumed = second.run()
    same(whole, second)
    points = toy.captions(20, 1).points
    assert resumed.caption(points) == whole.best.caption(points)
    again = training(recipe, tmp_path / "c")
    assert again.run().caption(points) == resumed.caption(points)


@pytest.mark.slow
def test_kill_9_and_resume(tmp_path):
    """A real process, killed at any moment, leaves a checkpoint that goes on to the same end."""
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import torch; torch.set_num_threads(1)\n"
        "import test_trainer as t, fishermix_lab.captions.trainer as module\n"
        "module.SECONDS_BETWEEN_CHECKPOINTS = 0.0\n"
        f"t.training(folder={str(tmp_path / 'c')!r}).run()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    state = tmp_path / "c" / "state"
    deadline = time.monotonic() + 60
    while read_kind(state) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    resumed = training(folder=tmp_path / "c")
    assert resumed.position.epoch or resumed.position.step
    resumed.run()
    whole = training()
    whole.run()
    same(whole, resumed)


@pytest.mark.slow
def test_ctrl_c_leaves_the_best_epoch_and_a_checkpoint(tmp_path):
    run = training(folder=tmp_path / "c")
    original = run._step

    def interrupted(batch, step, total):
        if step == run.steps_per_epoch + 2:
            raise KeyboardInterrupt
        original(batch, step, total)

    run._step = interrupted
    with pytest.raises(KeyboardInterrupt):
        run.run()
    resumed = training(folder=tmp_path / "c")
    assert resumed.position.epoch == 1
    points = toy.captions(20, 1).points
    assert resumed.best.caption(points) == run.best.caption(points)


def test_the_checkpoint_of_another_training_is_refused(tmp_path):
    training(replace(SMALL, epochs=1), tmp_path / "c").run()
    with refuses("other_training"):
        training(replace(SMALL, epochs=2), tmp_path / "c")
    with refuses("other_training"):
        training(replace(SMALL, epochs=1, seed=1), tmp_path / "c")


@pytest.mark.parametrize("part", ["train", "dev"])
def test_the_checkpoint_of_other_sentences_is_refused(part, tmp_path):
    """As many sentences, of the same words, for the same photos; only their order differs."""
    sets = {"train": toy.captions(60), "dev": toy.captions(20, 1)}
    Training(*sets.values(), toy.encode_text, SMALL, folder=tmp_path)._save()
    Training(*sets.values(), toy.encode_text, SMALL, folder=tmp_path)
    sets[part] = replace(sets[part], sentences=sets[part].sentences[::-1])
    with refuses("other_training"):
        Training(*sets.values(), toy.encode_text, SMALL, folder=tmp_path)


def test_it_stops_when_dev_gets_no_better(monkeypatch):
    run = training(replace(SMALL, epochs=30, patience=2))
    scores = iter([1.0, 5.0, 4.0, 4.0, 9.0])
    monkeypatch.setattr(module, "caption_scores", lambda *_: {"cider_d": next(scores)})
    run.run()
    assert (run.position.epoch, run.position.best_epoch, run.position.best) == (4, 2, 5.0)


def test_the_papers_recipe_lowers_the_loss():
    assert (PAPER.learning_rate, PAPER.momentum, PAPER.epochs, PAPER.units) == (1e-5, 0.5, 300, 512)
    run = training(replace(PAPER, units=24, min_count=2, batch_size=16, epochs=8))
    run.run()
    dev_losses = [record["dev_loss"] for record in run.position.history]
    assert all(later < earlier for earlier, later in pairwise(dev_losses))
    assert [record["epoch"] for record in run.position.history] == list(range(1, 9))


def test_a_step_depends_on_its_number_and_the_seed_alone():
    def masks(seed):
        return Dropout(0.5, 0.5, seed=seed).drop_outputs(torch.ones(4, 50))

    torch.manual_seed(1)
    one = masks(3)
    torch.manual_seed(2)
    assert torch.equal(masks(3), one)
    assert not torch.equal(masks(4), one)
    assert set(one.unique().tolist()) == {0.0, 2.0}


def test_gradients_are_those_of_finite_differences():
    network = CaptionNetwork(5, 4, 6, seed=0).double()
    generator = torch.Generator().manual_seed(0)
    starts = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    word_inputs = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    words = torch.randint(0, 6, (4, 3), generator=generator)
    targets = torch.randint(0, 6, (5, 3), generator=generator)
    targets[2, 1] = -100

    def loss(*parameters):
        named = dict(zip(dict(network.named_parameters()), parameters))
        scores = torch.func.functional_call(network, named, (starts, words, word_inputs))
        return cross_entropy(scores, targets, 0.1)[0]

    assert torch.autograd.gradcheck(loss, tuple(network.parameters()))


def test_the_rate_rises_and_falls():
    recipe = replace(DEFAULT, learning_rate=1.0, warmup=0.1, floor=0.05)
    rates = [recipe.compute_rate(step, 1000) for step in range(1000)]
    assert np.argmax(rates) in range(98, 103)
    assert np.all(np.diff(rates[:100]) > 0)
    assert np.all(np.diff(rates[101:]) < 0)
    assert rates[-1] == pytest.approx(0.05, abs=1e-3)
    assert {PAPER.compute_rate(step, 300) for step in range(300)} == {1e-5}
    assert set(CAPTION_RECIPES) == {"default", "fine-tune", "paper"}


@pytest.mark.slow
def test_removing_a_checkpoint_leaves_files_of_the_user(tmp_path):
    done = training(replace(SMALL, epochs=1), tmp_path / "c")
    done.run()
    (tmp_path / "c" / "notes.txt").write_text("mine")
    (tmp_path / "c" / "best" / "diary.txt").write_text("mine")
    done.remove_checkpoint()
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["c/best/diary.txt", "c/notes.txt"]
    (tmp_path / "c" / "notes.txt").unlink()
    (tmp_path / "c" / "best" / "diary.txt").unlink()
    (tmp_path / "c" / "best").rmdir()
    again = training(replace(SMALL, epochs=1), tmp_path / "c")
    again.run()
    again.remove_checkpoint()
    assert not (tmp_path / "c").exists()
