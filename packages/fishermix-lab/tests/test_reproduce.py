"""Seeds, comparisons and custom families in the paper's experiment, on a small world."""

import json

import numpy as np
import pytest
from fishermix import WordVectors
from fishermix.joint.ranks import Comparison
from fishermix.mixture import Family
from fishermix_lab.datasets.readers import Dataset
from fishermix_lab.recipe import RECIPES, Recipe, find_variant, load_family
from fishermix_lab.record import hide_folders, write_rows
from fishermix_lab.reproduce import Experiment, compare_variants
from fishermix_photos.cli import load_commands
from PIL import Image
from refuses import refuses
from typer.testing import CliRunner

RECIPE = Recipe(mixture_components=2, n_components=4, reg_x=(0.1,), reg_y=(0.1,), csls_neighbors=2)
SECH = """
import numpy as np
from fishermix.mixture import Family

class Sech(Family):
    name = "sech"

    def log_density(self, z):
        a = np.pi / 2 * np.abs(z)
        return -a - np.log1p(np.exp(-2 * a))

    def location_score(self, z):
        return np.pi / 2 * np.tanh(np.pi / 2 * z)

    def sample(self, rng, size):
        return 2 / np.pi * np.log(np.tan(np.pi / 2 * rng.uniform(size=size)))
"""


class Wide(Family):
    """A Gaussian of standard deviation 2."""

    name = "wide"

    def log_density(self, z):
        return -0.5 * (np.log(8 * np.pi) + (z / 2) ** 2)

    def location_score(self, z):
        return z / 4

    def sample(self, rng, size):
        return 2 * rng.standard_normal(size)


class WrongSample(Wide):
    name = "wrong sample"

    def sample(self, rng, size):
        return rng.standard_normal(size)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(dataset, vectors, folder): the color of a photo is a word of its sentences."""
    folder, rng = tmp_path_factory.mktemp("world"), np.random.default_rng(0)
    words = [f"word{number}" for number in range(60)]
    (folder / "images").mkdir()
    lines = []
    for number in range(48):
        pixels = np.full((40, 40, 3), rng.integers(256, size=3), np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
        named = [words[int(value) // 16 + 16 * channel] for channel, value in enumerate(pixels[0, 0])]
        captions = [" ".join([*named, word]) for word in rng.choice(words, 2)]
        split = ("train", "train", "val", "test")[number % 4]
        lines.append(json.dumps({"image": f"{number}.png", "captions": captions, "split": split}))
    (folder / "captions.jsonl").write_text("\n".join(lines))
    from fishermix_lab.datasets.readers import open_dataset

    vectors = WordVectors(words, rng.laplace(size=(60, 5)).astype(np.float32))
    vectors.save(folder / "vectors")
    return open_dataset(f"folder:{folder}"), vectors, folder


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("work")


def measure(world, work, *recipes, seeds=1) -> list:
    dataset, vectors, _ = world
    assert isinstance(dataset, Dataset)
    return list(Experiment(dataset, vectors, seeds=seeds).run(recipes, work))


@pytest.mark.slow
def test_seeds_give_the_mean_and_the_deviation_of_single_runs(world, work):
    singles = [measure(world, work, RECIPE.with_(seed=seed))[0] for seed in (4, 5, 6)]
    (result,) = measure(world, work, RECIPE.with_(seed=4), seeds=3)
    assert result.seeds == [4, 5, 6]
    for task, measures in result.figures.items():
        for name, value in measures.items():
            found = [single.figures[task][name] for single in singles]
            assert value == pytest.approx(np.mean(found))
            assert result.deviation[task][name] == pytest.approx(np.std(found, ddof=1))
    assert len({json.dumps(single.figures) for single in singles}) == 3, "the seed changes nothing"
    assert result.ranks == [single.ranks[0] for single in singles]


@pytest.mark.slow
def test_a_comparison_agrees_with_the_figures(world, work):
    results = measure(world, work, RECIPE, RECIPE.with_(variant="gmm"), seeds=2)
    ((pair, found),) = compare_variants(results).items()
    assert pair == "GMM - HGLMM"
    for name, comparison in found.items():
        task, measure_name = name.split()
        recalls = ["r@1"] if measure_name == "r@1" else ["r@1", "r@5", "r@10"]
        sums = [sum(result.figures[task][recall] for recall in recalls) for result in results]
        assert comparison.difference == pytest.approx(sums[1] - sums[0])
        assert comparison.low <= comparison.difference <= comparison.high


@pytest.mark.slow
def test_names_of_families_are_variants(world, work):
    same = measure(world, work, RECIPE, RECIPE.with_(variant="gaussian/laplace"))
    assert same[0].figures == same[1].figures
    assert [result.label for result in same] == ["HGLMM", "gaussian/laplace"]
    assert find_variant("gaussian+gaussian/laplace").families == find_variant("gmm+hglmm").families
    with refuses("wrong_parameter"):
        Recipe(variant="gaussian/cake")


@pytest.mark.slow
def test_a_custom_family_enters_the_experiment_as_an_object(world, work):
    """A Gaussian of another scale is the Gaussian: the scale of each component makes up for it."""
    custom, gaussian = measure(world, work, RECIPE.with_(families=[[Wide()]]), RECIPE.with_(variant="gmm"))
    assert custom.label == "wide"
    assert custom.figures["search"]["mean"] == pytest.approx(gaussian.figures["search"]["mean"], abs=1.5)
    (again,) = measure(world, work, RECIPE.with_(families=[[Wide()]]))
    assert again == custom


def test_a_changed_family_is_measured_again(world, work, monkeypatch):
    (before,) = measure(world, work, RECIPE.with_(families=[["laplace", Wide()]]))
    monkeypatch.setattr(Wide, "irls_weight", lambda self, z: np.full_like(z, 0.25), raising=False)
    (same,) = measure(world, work, RECIPE.with_(families=[["laplace", Wide()]]))
    assert same.inputs == before.inputs, "the same numbers, computed otherwise"
    monkeypatch.setattr(Wide, "irls_weight", lambda self, z: np.full_like(z, 0.3), raising=False)
    (after,) = measure(world, work, RECIPE.with_(families=[["laplace", Wide()]]))
    assert after.inputs != before.inputs


def test_the_experiment_runs_the_slow_checks_of_a_family(world, work):
    with refuses("wrong_family"):
        measure(world, work, RECIPE.with_(families=[[WrongSample()]]))


@pytest.mark.slow
def test_families_of_the_command_line(world, work, tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "paper", RECIPE)
    (tmp_path / "mine.py").write_text(SECH)
    outputs = ["--json", tmp_path / "t.json", "--work", work, "--vectors", world[2] / "vectors"]
    options = ["--variants", "sech,gaussian/sech", "--family", f"{tmp_path / 'mine.py'}:Sech", "--seeds", 2]
    words = ["reproduce", f"folder:{world[2]}", *options, *outputs]
    done = CliRunner().invoke(load_commands(), [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "gaussian/sech - sech" in done.output
    found = json.loads((tmp_path / "t.json").read_text())
    assert [row["label"] for row in found["rows"]] == ["sech", "gaussian/sech"]
    assert [row["seeds"] for row in found["rows"]] == [[0, 1]] * 2
    assert [len(row["by_seed"]) for row in found["rows"]] == [2] * 2
    for row, variant in zip(found["rows"], ["sech", "gaussian/sech"]):
        assert f"reproduce folder:DIR --variants {variant} " in row["command"]
        assert "--family mine.py:Sech --seeds 2 --vectors vectors" in row["command"]
        assert {"version", "machine", "inputs", "stages", "seconds"} <= set(row)
    assert list(found["comparisons"]) == ["gaussian/sech - sech"]
    assert str(tmp_path) not in json.dumps(found)


def test_variants_measured_one_at_a_time_are_rows_of_one_file(tmp_path):
    file = tmp_path / "rows.json"
    compared = Comparison(1.0, -1.0, 3.0, 0.8)
    gmm, lmm = ({"label": label, "command": f"reproduce --variants {label}"} for label in ("GMM", "LMM"))
    write_rows(file, [gmm])
    write_rows(file, [lmm])
    write_rows(file, [gmm, lmm], {"LMM - GMM": {"search r@1": compared}})
    again = {"label": "GMM", "command": "reproduce --variants GMM --seeds 3"}
    found = json.loads(file.read_text())
    assert found["rows"] == [gmm, lmm]
    assert found["comparisons"] == {"LMM - GMM": {"search r@1": compared._asdict()}}
    write_rows(file, [{"label": "GMM, view=flip", "command": "reproduce --set view=flip"}])
    assert list(json.loads(file.read_text())["comparisons"]) == ["LMM - GMM"]
    write_rows(file, [again])  # the comparison was with the figures before
    found = json.loads(file.read_text())
    assert found["rows"][:2] == [again, lmm]
    assert "comparisons" not in found


@pytest.mark.parametrize("place", ["Sech", "nowhere:Sech", f"{__file__}:cake", "/nowhere/x.py:Sech", ":"])
def test_families_that_are_not_there_are_reported(place):
    with refuses("wrong_parameter"):
        load_family(place)


def test_a_family_of_an_installed_module_is_found():
    assert load_family("fishermix.mixture.families:Logistic").name == "logistic"


def test_the_seed_is_an_option(world, work, tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "paper", RECIPE)
    outputs = ["--json", tmp_path / "t.json", "--work", work, "--vectors", world[2] / "vectors"]
    words = ["reproduce", f"folder:{world[2]}", "--variants", "gmm", "--seed", 3, *outputs]
    done = CliRunner().invoke(load_commands(), [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    (row,) = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert row["seeds"] == [3]
    assert "--seed 3" in row["command"]


def test_a_record_names_no_folder():
    assert hide_folders("flickr8k:/home/me/flickr8k") == "flickr8k:DIR"
    assert hide_folders("karpathy:/a/dataset.json:/b/images") == "karpathy:DIR"
    assert hide_folders("/home/me/mine.py:Sech") == "mine.py:Sech"
    assert hide_folders("/home/me/vectors") == "vectors"
    assert hide_folders("encoders=/home/me/a.onnx,/home/you/b.onnx") == "encoders=a.onnx,b.onnx"
    assert hide_folders("reg_x=0.1,0.3") == "reg_x=0.1,0.3"
    assert hide_folders(".cache/word2vec") == ".cache/word2vec"
