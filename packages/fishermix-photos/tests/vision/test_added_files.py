"""ONNX files that a user adds: small graphs with the inputs and outputs of the usual exports of CLIP."""

import json
import os
import tracemalloc

import numpy as np
import pytest
from fishermix import WordVectors
from fishermix.errors import FishermixError
from fishermix_lab.datasets.readers import Dataset
from fishermix_lab.recipe import find_recipe
from fishermix_lab.training import train_model
from fishermix_photos import ImageEncoder, ImageTextModel, PhotoLibrary
from fishermix_photos.cli import load_commands
from fishermix_photos.model.calibration import Calibration
from fishermix_photos.model.network import Network
from fishermix_photos.model.transformer import SentenceTransformer
from PIL import Image
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from typer.testing import CliRunner

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

COLORS = {"red": (220, 20, 20), "green": (20, 160, 20), "blue": (20, 20, 220), "white": (250, 250, 250)}
WORDS = ["<pad>", "<|startoftext|>", "<|endoftext|>", "a", "photo", "of", "wall", *COLORS]
SENTENCE = ["a", "photo", "of", "a", "red", "wall"]
WIDTH, LONGEST = 16, 77
RNG = np.random.default_rng(0)
TABLE, PLACES = (RNG.normal(size=(n, WIDTH)).astype(np.float32) for n in (len(WORDS), LONGEST))
PROJECTION = RNG.normal(size=(3, WIDTH)).astype(np.float32)


def save(path, nodes, inputs, outputs, **weights):
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def make_image_graph(path, output="image_embeds", side=("height", "width")):
    nodes = [
        helper.make_node("GlobalAveragePool", ["pixel_values"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "projection"], [output]),
    ]
    inputs = [("pixel_values", TensorProto.FLOAT, ["batch_size", 3, *side])]
    return save(path, nodes, inputs, {output: ["batch_size", WIDTH]}, projection=PROJECTION)


def make_text_graph(path, with_mask=False, tokens="sequence_length"):
    """A token is the sum of those up to it, and of its place, of which there are 77; the last one counts."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Shape", ["input_ids"], ["length"], start=1, end=2),
        helper.make_node("Slice", ["places", "zero", "length"], ["before"]),
        helper.make_node("Add", ["words", "before"], ["last_hidden_state"]),
        helper.make_node("Equal", ["input_ids", "end"], ["is_end"]),
        helper.make_node("Cast", ["is_end"], ["weight"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["weight", "two"], ["column"]),
        helper.make_node("CumSum", ["words", "one"], ["sums"]),
        helper.make_node("Add", ["sums", "before"], ["states"]),
        helper.make_node("Mul", ["states", "column"], ["ends"]),
        helper.make_node("ReduceSum", ["ends", "ones"], ["text_embeds"], keepdims=0),
    ]
    inputs = [("input_ids", TensorProto.INT64, ["batch_size", tokens])]
    if with_mask:
        inputs.append(("attention_mask", TensorProto.INT64, ["batch_size", tokens]))
    outputs = {
        "last_hidden_state": ["batch_size", tokens, WIDTH],
        "text_embeds": ["batch_size", WIDTH],
    }
    end = WORDS.index("<|endoftext|>")
    numbers = {"zero": [0], "one": 1, "ones": [1], "two": [2], "end": end}
    weights = {name: np.array(value, np.int64) for name, value in numbers.items()}
    return save(path, nodes, inputs, outputs, table=TABLE, places=PLACES, **weights)


def make_tokenizer(path, **truncation):
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="a"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|startoftext|> $A <|endoftext|>",
        special_tokens=[("<|startoftext|>", 1), ("<|endoftext|>", 2)],
    )
    if truncation:
        tokenizer.enable_truncation(**truncation)
    tokenizer.save(str(path))
    return path


def encode_by_hand(words, most=LONGEST):
    ids = [1, *(WORDS.index(word) for word in words)][: most - 1] + [2]
    vector = TABLE[ids].sum(axis=0) + PLACES[len(ids) - 1]
    return vector / np.linalg.norm(vector)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def files(tmp_path):
    """The image graph, the text graph and the tokenizer."""
    return (
        make_image_graph(tmp_path / "vision_model.onnx"),
        make_text_graph(tmp_path / "text_model.onnx"),
        make_tokenizer(tmp_path / "tokenizer.json"),
    )


def run(*arguments):
    return CliRunner().invoke(load_commands(), ["networks", *map(str, arguments)])


def add_clip(files):
    image, text, tokenizer = files
    return run("add", image, "--name", "clip", "--text", text, "--tokenizer", tokenizer)


def test_an_image_graph_of_clip_needs_no_json(files, home):
    added = add_clip(files)
    assert added.exit_code == 0, added.exception
    assert "Added clip (16 features)" in added.output
    assert "clip: 224 x 224 pixels" in run("list").output
    described = json.loads((home / "encoders" / "clip" / "encoder.json").read_text())
    assert (described["input"], described["output"], described["batch"]) == (
        "pixel_values",
        "image_embeds",
        1,
    )
    np.testing.assert_allclose(np.array(described["mean"]) / 255, [0.48145466, 0.4578275, 0.40821073])
    np.testing.assert_allclose(np.array(described["std"]) / 255, [0.26862954, 0.26130258, 0.27577711])
    red = Image.new("RGB", (60, 40), COLORS["red"])
    unit = (np.array(COLORS["red"]) - described["mean"]) / described["std"]
    np.testing.assert_allclose(ImageEncoder("clip").transform([red])[0], unit @ PROJECTION, atol=2e-3)


def test_the_size_of_an_image_graph_is_its_own(tmp_path):
    graph = make_image_graph(tmp_path / "large.onnx", side=(336, 336))
    assert run("add", graph).exit_code == 0
    assert "large: 336 x 336 pixels" in run("list").output


@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize("tokens", ["sequence_length", LONGEST])
def test_a_sentence_has_the_vector_of_its_last_token(tmp_path, files, with_mask, tokens):
    text = make_text_graph(tmp_path / "other_text.onnx", with_mask, tokens)
    assert add_clip((files[0], text, files[2])).exit_code == 0
    transformer = SentenceTransformer.find("clip")
    assert transformer.n_features == WIDTH
    vectors = transformer.encode(["A photo of a RED wall", "blue", "red " * 200])
    np.testing.assert_allclose(vectors[0], encode_by_hand(SENTENCE), atol=1e-5)
    np.testing.assert_allclose(vectors[1], encode_by_hand(["blue"]), atol=1e-5)
    np.testing.assert_allclose(vectors[2], encode_by_hand(["red"] * 200), atol=1e-5)


def test_the_tokenizer_says_how_long_a_sentence_may_be(files, tmp_path):
    tokenizer = make_tokenizer(tmp_path / "short.json", max_length=5)
    assert add_clip((*files[:2], tokenizer)).exit_code == 0
    vector = SentenceTransformer.find("clip").encode(["a photo of a red wall"])[0]
    np.testing.assert_allclose(vector, encode_by_hand(SENTENCE, most=5), atol=1e-5)


@pytest.mark.slow
def test_both_sides_are_trained_and_searched(files, tmp_path):
    assert add_clip(files).exit_code == 0
    photos, names, sentences = tmp_path / "photos", [], []
    photos.mkdir()
    for number in range(24):
        color = list(COLORS)[number % 4]
        shade = np.clip(np.array(COLORS[color]) + RNG.integers(-15, 16, 3), 0, 255)
        names.append(f"{number}.png")
        Image.new("RGB", (60, 40), tuple(map(int, shade))).save(photos / names[-1])
        sentences += [f"a photo of a {color} wall", f"{color} wall"]
    splits = np.array(["train"] * 16 + ["dev"] * 8)
    dataset = Dataset(
        "colors", names, [photos / name for name in names], sentences, np.repeat(np.arange(24), 2), splits
    )
    words = WORDS[3:]
    vectors = WordVectors(words, RNG.normal(size=(len(words), 6)).astype(np.float32))
    recipe = find_recipe("shipped").with_(
        encoders=("clip",), transformer="clip", mixture_components=2, reg_x=(0.01,), reg_y=(0.01,)
    )
    train_model(dataset, vectors, recipe, tmp_path / "work").save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["encoders"] == ["clip"]
    assert config["transformer"]["name"] == "clip"
    with PhotoLibrary(tmp_path / "library", ImageTextModel.load(tmp_path / "model")) as library:
        library.update([photos])
        for number, color in enumerate(COLORS):
            best = library.search(f"a photo of a {color} wall").photos[0]
            assert int(best.path.rpartition("/")[2].removesuffix(".png")) % 4 == number


def test_what_cannot_be_added_is_explained_and_leaves_nothing(files, tmp_path, home):
    image, text, tokenizer = files
    for arguments, message in [
        ([image, "--text", text], "belong together"),
        ([image, "--name", "a/b"], "cannot be the name"),
        ([image, "--name", "efficientnet-lite2"], "cannot be the name"),
        ([tmp_path / "missing.onnx"], "does not exist"),
        ([make_image_graph(tmp_path / "other.onnx", "features")], "needs other.json next to it"),
        ([image, "--text", image, "--tokenizer", tokenizer], "unknown inputs pixel_values"),
        ([image, "--text", text, "--tokenizer", image], "tokenizer.json cannot be read"),
        ([image, "--text", tmp_path / "missing.onnx", "--tokenizer", tokenizer], "Cannot read"),
    ]:
        result = run("add", *arguments)
        assert isinstance(result.exception, FishermixError), result.output
        assert message in str(result.exception)
    assert not list(home.rglob("*.onnx"))


def test_lengths_and_sides_that_would_use_up_the_memory_are_refused(files, tmp_path):
    """Of a sentence of a billion tokens, the tokenizer ends the process."""
    image, text, tokenizer = files
    padded = Tokenizer.from_file(str(tokenizer))
    padded.enable_padding(length=10**12)
    padded.save(str(tmp_path / "padded.json"))
    wide_image = make_image_graph(tmp_path / "wide.onnx", side=(10**6, 10**6))
    for arguments, message in [
        ([image, "--text", text, "--tokenizer", tmp_path / "padded.json"], "1000000000000 tokens"),
        ([wide_image], "1000000 x 1000000 pixels"),
    ]:
        result = run("add", *arguments)
        assert isinstance(result.exception, FishermixError), result.output
        assert message in str(result.exception)


def test_a_tokenizer_that_pads_to_a_multiple_is_padded_to_the_length_of_its_graph(files, tmp_path):
    padded = Tokenizer.from_file(str(files[2]))
    padded.enable_padding(length=LONGEST, pad_to_multiple_of=10**12)
    padded.save(str(tmp_path / "padded.json"))
    assert add_clip((*files[:2], tmp_path / "padded.json")).exit_code == 0


def test_huge_json_files_are_refused_before_they_are_read(tmp_path):
    """A file with holes takes no space, whatever its size."""
    graph, sidecar, calibration = (tmp_path / name for name in ("n.onnx", "n.json", "calibration.json"))
    graph.touch()
    for path in (sidecar, calibration):
        path.touch()
        os.truncate(path, 200_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(FishermixError):
            Network.read(graph, sidecar)
        with pytest.raises(FishermixError):
            Calibration.load(tmp_path, "")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
