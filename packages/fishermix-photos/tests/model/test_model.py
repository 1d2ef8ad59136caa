"""The pipeline: training, the joint space, saving and the tables, on a small world of colors.

A photograph is a colored square or disc; its sentences name color and shape. Everything is real but small:
the shipped network, ICA, a hybrid mixture, CCA.
"""

import itertools
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from fishermix import WordVectors
from fishermix.errors import FishermixError
from fishermix.joint.ranks import figures, recall_sum, task_ranks
from fishermix_lab import tables
from fishermix_lab.commands.train import apply_changes
from fishermix_lab.datasets.readers import open_dataset
from fishermix_lab.recipe import RECIPES, VARIANTS, Recipe, find_recipe
from fishermix_lab.reproduce import Experiment
from fishermix_lab.tables import TABLE_COLUMNS, read_published
from fishermix_lab.training import evaluate_model, train_model, with_dev
from fishermix_photos import ImageTextModel
from fishermix_photos.cli import load_commands
from fishermix_photos.model.explain import explain_score
from fishermix_photos.model.saved import SHIPPED
from PIL import Image, ImageDraw
from refuses import refuses
from typer.testing import CliRunner

COLORS = {"red": (220, 30, 30), "green": (30, 160, 40), "blue": (30, 60, 220), "yellow": (230, 220, 30)}
SHAPES = ("square", "disc", "stripes")
SENTENCES = ("a {} {}", "the {} {} lies there", "one {} {} alone")
RECIPE = Recipe(
    variant="hglmm",
    mixture_components=3,
    n_components=6,
    image_power=0.5,
    image_l2=True,
    correlation_powers=(0.5, 1.0),
    reg_y=(0.01,),
    csls_neighbors=3,
    csls_bank_size=20,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    (folder / "images").mkdir()
    rng, lines = np.random.default_rng(0), []
    for number, (color, shape, again) in enumerate(itertools.product(COLORS, SHAPES, range(5))):
        picture = Image.new("RGB", (64, 64), tuple(int(v) for v in rng.integers(180, 255, 3)))
        draw, (x, y) = ImageDraw.Draw(picture), rng.integers(4, 20, 2).tolist()
        box = (x, y, x + 38, y + 38)
        if shape == "disc":
            draw.ellipse(box, fill=COLORS[color])
        elif shape == "square":
            draw.rectangle(box, fill=COLORS[color])
        else:
            for line in range(0, 38, 8):
                draw.rectangle((x, y + line, x + 38, y + line + 3), fill=COLORS[color])
        picture.save(folder / "images" / f"{number}.png")
        split = ("train", "train", "train", "val", "test")[again]
        captions = [sentence.format(color, shape) for sentence in SENTENCES]
        lines.append(json.dumps({"image": f"{number}.png", "captions": captions, "split": split}))
    (folder / "captions.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(1)
    words = [
        *COLORS,
        *SHAPES,
        "a",
        "the",
        "lies",
        "there",
        "one",
        "alone",
        *(f"word{n}" for n in range(300)),
    ]
    return WordVectors(words, rng.laplace(size=(len(words), 10)).astype(np.float32))


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def model(folder, vectors, work):
    return train_model(open_dataset(f"folder:{folder}"), vectors, RECIPE, work)


@pytest.mark.slow
def test_the_joint_space_finds_color_and_shape(model, folder, work):
    found = evaluate_model(model, open_dataset(f"folder:{folder}").part("test"), work / "features")
    # Twelve test photos, one of each kind: guessing finds one in twelve at the first place.
    assert found["search"]["r@1"] > 50
    assert found["annotation"]["r@5"] > 75
    assert set(found["similarity"]) >= {"mean", "median"}


def test_points_have_length_one_and_unknown_sentences_none(model):
    with pytest.warns(UserWarning, match="no word in the vocabulary"):
        points = model.encode_text(["a red disc", "xyzzy plugh", ""])
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), [1, 0, 0], atol=1e-6)
    assert model.encode_text([]).shape == (0, model.dimension)
    with refuses("wrong_parameter"):
        model.encode_text("a red disc")


def test_points_are_those_of_the_cca(model, folder):
    space, photo = model.joint_space, folder / "images" / "5.png"
    sentences = model.sentence_encoder.transform(["a red disc"])
    by_cca = space.projections.project_y(sentences, space.power)[0]
    expected = by_cca / np.linalg.norm(by_cca)
    np.testing.assert_allclose(model.encode_text(["a red disc"])[0], expected, atol=1e-4)
    features = np.sqrt(np.maximum(model.image_encoder.transform([photo]), 0))
    by_cca = space.projections.project_x(features / np.linalg.norm(features), space.power)[0]
    np.testing.assert_allclose(model.encode_images([photo])[0], by_cca / np.linalg.norm(by_cca), atol=1e-4)


def test_save_and_load_give_the_same_bits(model, folder, tmp_path):
    photos = [folder / "images" / "0.png", folder / "images" / "7.png"]
    model.save(tmp_path / "model")
    again = ImageTextModel.load(tmp_path / "model")
    np.testing.assert_array_equal(again.encode_text(["a blue square"]), model.encode_text(["a blue square"]))
    np.testing.assert_array_equal(again.encode_images(photos), model.encode_images(photos))
    assert again.key == model.key
    assert again.report == model.report
    assert again.report["recipe"]["variant"] == RECIPE.variant


def test_half_precision_keeps_the_points(model, tmp_path):
    model.save(tmp_path / "model", half=True)
    again = ImageTextModel.load(tmp_path / "model")
    sentences = ["a blue square", "the yellow stripes"]
    assert (np.sum(again.encode_text(sentences) * model.encode_text(sentences), axis=1) > 0.999).all()


def use(model):
    """Look at every part of a loaded model."""
    return model.sentence_vectors, model.sentence_encoder, model.image_encoder


def test_a_damaged_model_is_refused(model, tmp_path):
    model.save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    saved = json.loads(config.read_text())
    for change, code, about in (
        ({"encoder_key": "0"}, "other_network", {}),
        ({"image_power": -1}, "damaged", {"field": "image_power"}),
        ({"power": -1}, "damaged", {"field": "power"}),
    ):
        config.write_text(json.dumps({**saved, **change}))
        with refuses(code, **about):
            use(ImageTextModel.load(tmp_path / "model"))


def test_a_second_fit_takes_its_stages_from_the_work_folder(model, folder, vectors, work, monkeypatch):
    def never(*_args, **_options):
        raise AssertionError("a finished stage was made again")

    monkeypatch.setattr("fishermix.text.whitening.Whitening.fit", never)
    monkeypatch.setattr("fishermix.mixture.Mixture.fit", never)
    monkeypatch.setattr(
        "fishermix_photos.model.image_vectors.ImageVectors.stream",
        lambda _, images: iter([never() for _ in images]),
    )
    again = train_model(open_dataset(f"folder:{folder}"), vectors, RECIPE, work)
    np.testing.assert_array_equal(again.encode_text(["a red disc"]), model.encode_text(["a red disc"]))


def test_indexing_does_not_make_the_text_side(model, tmp_path, monkeypatch):
    model.save(tmp_path / "model")

    def never(**_):
        raise AssertionError("the text side was made")

    monkeypatch.setattr("fishermix_photos.model.model.SentenceVectors", never)
    loaded = ImageTextModel.load(tmp_path / "model")
    point = loaded.encode_images([Image.new("RGB", (32, 32))])
    assert loaded.joint_space.csls_left(point).shape == (1, loaded.csls_dimension)
    assert loaded.key == model.key
    with pytest.raises(AssertionError, match="the text side was made"):
        loaded.encode_text(["a red disc"])


def test_without_validation_images_a_tenth_is_held_out(folder):
    dataset = open_dataset(f"folder:{folder}").part("train")
    held = with_dev(dataset, seed=0)
    assert held.counts() == {"train": 33, "dev": 3}
    assert with_dev(held, seed=1) is held
    with refuses("too_few"):
        with_dev(dataset.select(range(5)), seed=0)


def test_recipes_name_what_they_do_not_know():
    assert find_recipe("paper") == RECIPES["paper"]
    with refuses("wrong_parameter"):
        find_recipe("cake")
    with refuses("wrong_parameter"):
        Recipe(variant="cake")


def test_the_banks_come_and_go_with_the_model(model, tmp_path):
    def banks(folder):
        return sorted(path.name for path in folder.iterdir() if path.name.startswith("hubness"))

    place = tmp_path / "model"
    model.save(place)
    (first,) = banks(place)
    loaded = ImageTextModel.load(place)
    assert loaded.key == model.key
    assert loaded.key != loaded.space_key
    pairs = (["a red disc", "zorblax"], [Image.new("RGB", (32, 32), "red")])
    np.testing.assert_allclose(loaded.similarity(*pairs), model.similarity(*pairs), atol=1e-5)
    model.save(place, half=True)
    assert banks(place) not in ([], [first])
    shutil.rmtree(place / banks(place)[0])
    with refuses("damaged"):
        ImageTextModel.load(place).similarity(*pairs)
    plain = ImageTextModel(
        model.sentence_encoder, model.image_encoder, replace(model.joint_space, hubness=None)
    )
    model.save(place)
    plain.save(place)
    assert banks(place) == []
    assert ImageTextModel.load(place).joint_space.hubness is None


def test_unknown_words_are_the_same_before_and_after_the_parts_are_made(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = ImageTextModel.load(tmp_path / "model")
    for used in (model, loaded, loaded.sentence_encoder and loaded):
        unknown = used.encode_query("a zorblax and the red disc of a blorb, zorblax")[1]
        assert unknown == ["zorblax", "blorb"]


def test_a_save_that_dies_before_its_end_leaves_the_old_model(model, tmp_path, monkeypatch):
    place = tmp_path / "model"
    model.save(place)
    before = ImageTextModel.load(place).encode_text(["a red disc"])

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fishermix.saved.folder.write_atomically", die)
    with pytest.raises(KeyboardInterrupt):
        model.save(place, half=True)
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path / "new")
    monkeypatch.undo()
    old = ImageTextModel.load(place)
    np.testing.assert_array_equal(old.encode_text(["a red disc"]), before)
    assert old.key == model.key
    model.save(tmp_path / "new")
    assert ImageTextModel.load(tmp_path / "new").key == model.key


def test_a_captioner_of_another_model_is_refused(model, tmp_path):
    model.save(tmp_path / "model")
    shutil.copytree(SHIPPED / "captioner", tmp_path / "model" / "captioner")
    with refuses("wrong_captioner"):
        ImageTextModel.load(tmp_path / "model").caption([Image.new("RGB", (32, 32))])


@pytest.mark.parametrize(
    "missing", ["encoders", "correlation_power", "image_l2", "power", "mixtures", "view"]
)
def test_a_config_without_a_part_is_named(model, tmp_path, missing):
    model.save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    values = json.loads(config.read_text())
    for damaged in (
        {key: value for key, value in values.items() if key != missing},
        {**values, missing: None},
    ):
        config.write_text(json.dumps(damaged))
        with refuses("damaged"):
            ImageTextModel.load(tmp_path / "model")


@pytest.mark.slow
def test_training_needs_photos_and_sentences_that_say_something(folder, vectors, tmp_path):
    dataset = open_dataset(f"folder:{folder}")
    few = dataset.select([int(np.flatnonzero(dataset.splits == split)[0]) for split in ("train", "dev")])
    with refuses("too_few"):
        train_model(few, vectors, RECIPE)
    mute = replace(dataset, sentences=["zorblax"] * len(dataset.sentences))
    for recipe in (RECIPE, RECIPE.with_(csls_neighbors=0)):
        with refuses("too_few"):
            train_model(mute, vectors, recipe)


def test_recall_sum_is_the_sum_of_six_recalls():
    rng = np.random.default_rng(0)
    images, sentences, image_of = rng.normal(size=(30, 4)), rng.normal(size=(60, 4)), np.arange(60) // 2
    found = figures(task_ranks(images, sentences, image_of))
    total = sum(found[task][k] for task in ("search", "annotation") for k in ("r@1", "r@5", "r@10"))
    assert recall_sum(images, sentences, image_of) == pytest.approx(total)


@pytest.fixture(scope="module")
def results(folder, vectors, work):
    return measure_two_variants(folder, vectors, work)


def measure_two_variants(folder, vectors, work):
    recipes = [RECIPE.with_(variant=variant) for variant in ("mean", "hglmm")]
    return list(Experiment(open_dataset(f"folder:{folder}"), vectors).run(recipes, work))


def test_variants_are_measured_and_resumed(results, folder, vectors, work, monkeypatch):
    assert [result.variant for result in results] == ["mean", "hglmm"]
    monkeypatch.setattr("fishermix_lab.reproduce.train_model", None)
    assert measure_two_variants(folder, vectors, work) == results


def test_tables_show_published_rows_beside_ours(results):
    columns = [list(column.cells) for column in tables.as_text("flickr8k", results).columns]
    rows = list(zip(*columns))
    assert len(rows) == len(read_published()["flickr8k"]) + 2
    assert rows[16][:5] == ("VGG", "GMM+HGLMM", "21.3", "50.0", "64.6")
    assert rows[-1][2] == f"{results[1].figures['search']['r@1']:.1f}"


def test_published_tables_are_complete():
    """Counts of the paper's tables, and the rows that the text quotes."""
    published = read_published()
    assert {table: len(rows) for table, rows in published.items()} == {
        "flickr8k": 17,
        "flickr30k": 16,
        "pascal1k": 13,
        "coco-1k": 6,
        "coco-5k": 6,
    }
    best = next(row for row in published["flickr8k"] if row.encoder == "VGG" and row.variant == "GMM+HGLMM")
    assert best.figures == (21.3, 50.0, 64.6, 5.0, 30.3, 31.0, 59.3, 73.7, 4.0, 22.2, 11.9)
    assert all(len(row.figures) == len(TABLE_COLUMNS) for rows in published.values() for row in rows)


@pytest.fixture
def run():
    """Run a command of the command line as a user does; returns its result."""
    app = load_commands()
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_evaluate_writes_the_figures_as_json(run, model, folder, work, tmp_path):
    model.save(tmp_path / "model")
    spec, out = f"folder:{folder}", tmp_path / "figures.json"
    done = run("evaluate", tmp_path / "model", "--data", spec, "--work", work, "--json", out)
    assert done.exit_code == 0, done.output
    [row] = json.loads(out.read_text())["rows"]
    found = row["figures"]
    wanted = evaluate_model(model, open_dataset(spec).part("test"), work / "features")
    assert row["command"] == "fishermix evaluate model --data folder:DIR --split test"
    assert {"version", "machine", "inputs", "stages", "seconds"} <= set(row)
    assert found["search"] == pytest.approx(wanted["search"])
    assert set(found["annotation"]) == {"r@1", "r@5", "r@10", "median", "mean"}
    assert found["similarity"]["mean"] == pytest.approx(wanted["similarity"]["mean"])


@pytest.mark.slow
def test_train_makes_a_model_that_evaluate_reads(run, folder, vectors, tmp_path):
    vectors.save(tmp_path / "vectors")
    out = tmp_path / "model"
    options = (
        "--vectors",
        tmp_path / "vectors",
        *("--set", "variant=gmm", "--set", "mixture_components=2", "--set", "n_components=4"),
        *("--words", 100),
    )
    done = run("train", "--data", f"folder:{folder}", "--recipe", "shipped", "--out", out, "--half", *options)
    assert done.exit_code == 0, done.output
    assert "search" in done.output
    trained = ImageTextModel.load(out)
    assert trained.dimension == 4
    assert len(trained.sentence_encoder.vectors) == 100
    assert "disc" in trained.sentence_encoder.vectors


@pytest.mark.slow
def test_validation_photos_of_a_second_set_are_left_out(run, folder, vectors, tmp_path):
    vectors.save(tmp_path / "vectors")
    spec, counts = f"folder:{folder}", open_dataset(f"folder:{folder}").counts()
    options = ("--vectors", tmp_path / "vectors", "--recipe", "shipped")
    options += ("--set", "variant=mean", "--set", "n_components=4")
    done = run("train", "--data", spec, "--data-only-train", spec, "--out", tmp_path / "model", *options)
    assert done.exit_code == 0, done.output
    expected = {"train": 2 * counts["train"], "dev": counts["dev"]}
    assert ImageTextModel.load(tmp_path / "model").report["images"] == expected


@pytest.mark.slow
def test_every_variant_is_measured_and_printed(run, folder, vectors, work, tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "paper", RECIPE)
    monkeypatch.setenv("COLUMNS", "170")
    vectors.save(tmp_path / "vectors")
    given = ["--variants", ",".join(VARIANTS), "--vectors", tmp_path / "vectors", "--work", work]
    given += ["--json", tmp_path / "t.json"]
    done = run("reproduce", f"folder:{folder}", *given)
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert [result["variant"] for result in found] == list(VARIANTS)
    for variant in VARIANTS.values():
        assert variant.label in done.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cake=1", "write NAME=VALUE, with one of variant, mixture_components"),
        ("variant", "write NAME=VALUE"),
        ("variant=cake", "no variant 'cake'"),
        ("mixture_components=0", "--set mixture_components=0: Expected `int` >= 1."),
        ("reg_x=0.1,much", "--set reg_x=0.1,much: Expected `float`"),
    ],
)
def test_a_change_of_the_recipe_that_is_none_is_explained(change, message):
    with pytest.raises(FishermixError) as error:
        apply_changes(Recipe(), [change])
    assert message in str(error.value)


def test_changes_of_the_recipe_have_the_types_of_its_fields():
    changes = ["encoders=resnet50,clip", "reg_x=0.1", "transformer=none", "image_l2=true", "seed=3"]
    changed = apply_changes(RECIPES["best"], changes)
    assert changed == RECIPES["best"].with_(
        encoders=("resnet50", "clip"), reg_x=(0.1,), transformer=None, image_l2=True, seed=3
    )


def test_the_commands_name_what_is_missing(run, folder, tmp_path):
    spec, nowhere = f"folder:{folder}", tmp_path / "nowhere"
    for words, message in (
        (("train", "--out", tmp_path / "m"), "Name at least one data set"),
        (("train", "--data", spec, "--out", tmp_path / "m", "--vectors", nowhere), "make word2vec"),
        (("evaluate", nowhere, "--data", spec), "no saved"),
        (("evaluate",), "Name at least one data set"),
        (("reproduce", spec, "--vectors", folder, "--variants", "cake"), "no variant 'cake'"),
        (("reproduce", spec, "--vectors", folder, "--variants", "gmm,cake"), "no variant 'cake'"),
        (("reproduce", spec, "--json", nowhere / "r.json"), "There is no folder"),
        (("evaluate", "--data", spec, "--json", nowhere / "r.json"), "There is no folder"),
        (("train", "--data", spec, "--out", folder, "--vectors", folder), "holds no image-text model"),
        (("train", "--data", spec, "--out", folder / "captions.jsonl", "--vectors", folder), "is a file"),
        (("reproduce", "flickr8k:/nope", "--vectors", nowhere), "There is no folder /nope"),
        (("reproduce", spec, "--recipe", "cake", "--vectors", nowhere), "no recipe 'cake'"),
        (("reproduce", spec, "--vectors", nowhere), "make word2vec"),
        (("train", "--data", "cake:x", "--out", tmp_path / "m", "--vectors", nowhere), "not a data set"),
        (
            ("train", "--data", spec, "--recipe", "cake", "--out", tmp_path / "m", "--vectors", nowhere),
            "no recipe",
        ),
    ):
        done = run(*words)
        assert isinstance(done.exception, FishermixError), (words, done.output)
        assert message in str(done.exception)


def test_a_sentence_transformer_next_to_the_fisher_vector(folder, vectors, work, tmp_path):
    recipe = RECIPE.with_(transformer="all-MiniLM-L6-v2", transformer_weight=0.7)
    trained = train_model(open_dataset(f"folder:{folder}"), vectors, recipe, work)
    trained.save(tmp_path / "model")
    loaded = ImageTextModel.load(tmp_path / "model")
    sentences = ["a red disc", "a crimson circle", "zorblax"]
    points = loaded.encode_text(sentences)  # by the plain object
    np.testing.assert_allclose(points, trained.encode_text(sentences), atol=1e-6)
    assert loaded.reads_unknown_words
    assert loaded.encode_query("a crimson disc")[1] == ["crimson"]
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-5)
    image = loaded.encode_images([Image.new("RGB", (64, 64), (220, 30, 30))])[0]
    why = explain_score("a red disc", image, (), loaded, loaded.encode_query)
    assert max(why.words, key=lambda part: part.drop).word == "red"
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["transformer"]["key"] = 64 * "0"
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    with refuses("other_network"):
        ImageTextModel.load(tmp_path / "model").encode_text(sentences)
