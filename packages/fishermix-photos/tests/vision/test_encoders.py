import io
import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import odd_images
import onnx
import pytest
from fishermix_photos.model.image_encoder import ImageEncoder
from fishermix_photos.model.image_vectors import cut_crops
from fishermix_photos.model.network import Network, open_session
from fishermix_photos.photos.open import UnreadableImage
from PIL import Image
from refuses import refuses
from skimage import data
from sklearn.base import clone
from tiny_network import SIDECAR, SIZE, write_tiny_network

CATS, COFFEE = {281, 282, 285}, {967, 968}


@pytest.fixture(scope="module")
def default() -> ImageEncoder:
    return ImageEncoder()


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    names = ("chelsea", "coffee", "astronaut", "rocket")
    return [Image.fromarray(getattr(data, name)()) for name in names]


def logits(network: Network, photo: Image.Image, view: str = "squeeze") -> np.ndarray:
    session = open_session(network.graph)
    (found,) = session.run(["logits"], {network.input: network.prepare(cut_crops(photo, view, network.size))})
    return found[0]


def test_the_default_encoder_sees_a_cat_and_a_coffee(photos):
    """Only the right preparation of an image (scale, order of channels, means) classifies it rightly."""
    network = Network.find("efficientnet-lite2")
    assert logits(network, photos[0]).argmax() in CATS
    assert logits(network, photos[1]).argmax() in COFFEE


def test_the_shipped_file_is_small_enough_for_git():
    assert Network.find("efficientnet-lite2").graph.stat().st_size < 13e6


def test_default_features(default, photos):
    found = default.transform(photos)
    assert found.shape == (4, default.n_features) == (4, 1280)
    assert found.dtype == np.float32
    assert default.transform([]).shape == (0, 1280)
    # Four different photos: no two vectors are alike.
    alike = np.corrcoef(found)
    assert alike[np.triu_indices(4, 1)].max() < 0.6


def test_another_output_of_a_named_network(default, photos):
    depths = ImageEncoder("efficientnet-lite2:depths").transform(photos)
    assert depths.shape == (4, 1752)
    assert np.array_equal(depths[:, :1280], default.transform(photos))
    with refuses("wrong_network"):
        _ = ImageEncoder("efficientnet-lite2:nowhere").n_features


def test_flip_is_the_mean_of_a_photo_and_its_mirror_image(default, photos):
    mirrored = photos[0].transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    both = default.transform([photos[0], mirrored])
    np.testing.assert_allclose(
        ImageEncoder(view="flip").transform(photos[:1])[0], both.mean(axis=0), rtol=1e-5, atol=1e-5
    )


def test_the_bits_of_a_row_depend_on_the_image_alone(default, photos):
    wanted = default.transform(photos)
    for batch_size, threads in ((1, 1), (3, 3), (8, 1)):
        found = ImageEncoder(batch_size=batch_size, threads=threads).transform(photos * 2)
        assert np.array_equal(found, np.tile(wanted, (2, 1))), (batch_size, threads)


def test_a_dense_layer_gives_the_same_bits_in_every_batch(tiny, pictures):
    wanted = ImageEncoder(tiny, batch_size=1).transform(pictures)
    for batch_size in (2, 3, 7, 24):
        assert np.array_equal(ImageEncoder(tiny, batch_size=batch_size).transform(pictures), wanted), (
            batch_size
        )


def by_hand(graph_path, photo: Image.Image, sidecar: dict) -> np.ndarray:
    """The tiny network computed with numpy alone."""
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in onnx.load(graph_path).graph.initializer}
    pixels = np.asarray(photo.resize((SIZE, SIZE), Image.Resampling.BICUBIC), np.float64)
    if sidecar["channels"] == "BGR":
        pixels = pixels[..., ::-1]
    image = (pixels - sidecar["mean"]) / sidecar["std"]
    windows = np.lib.stride_tricks.sliding_window_view(image, (5, 5), axis=(0, 1))[::2, ::2]
    hidden = np.einsum("yxcij,ocij->oyx", windows, weights["w0"]) + weights["w1"][:, None, None]
    return weights["w2"] @ np.maximum(hidden, 0).ravel() + weights["w3"]


@pytest.mark.parametrize("channels", ["RGB", "BGR"])
def test_any_network_file_is_fed_as_its_json_says(tmp_path, photos, channels):
    path = write_tiny_network(tmp_path, channels=channels)
    found = ImageEncoder(path).transform(photos[:1])[0]
    wanted = by_hand(path, photos[0], {**SIDECAR, "channels": channels})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_channels_last_and_a_spatial_output(tmp_path, photos):
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Identity", ["image"], ["pixels"])],
        "identity",
        [helper.make_tensor_value_info("image", real, ["n", SIZE, SIZE, 3])],
        [helper.make_tensor_value_info("pixels", real, ["n", SIZE, SIZE, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "identity.onnx")
    (tmp_path / "identity.json").write_text(json.dumps({**SIDECAR, "layout": "NHWC", "output": "pixels"}))
    found = ImageEncoder(tmp_path / "identity.onnx").transform(photos[:1])[0]
    pixels = np.asarray(photos[0].resize((SIZE, SIZE), Image.Resampling.BICUBIC), float).mean(axis=(0, 1))
    np.testing.assert_allclose(found, (pixels - SIDECAR["mean"]) / SIDECAR["std"], rtol=1e-4)


def test_a_file_that_allows_one_batch_size_only(tmp_path, tiny, pictures):
    model = onnx.load(tiny)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    onnx.save(model, tmp_path / "three.onnx")
    (tmp_path / "three.json").write_text(json.dumps(SIDECAR))
    found = ImageEncoder(tmp_path / "three.onnx").transform(pictures[:8])
    np.testing.assert_allclose(found, ImageEncoder(tiny).transform(pictures[:8]), rtol=1e-5, atol=1e-5)


def test_paths_bytes_and_pil_images_give_the_same(tmp_path, tiny, pictures):
    (tmp_path / "photo.jpg").write_bytes(pictures[0])
    ways = [
        tmp_path / "photo.jpg",
        str(tmp_path / "photo.jpg"),
        pictures[0],
        Image.open(io.BytesIO(pictures[0])),
    ]
    found = ImageEncoder(tiny).transform(ways)
    assert (found == found[0]).all()


@pytest.mark.filterwarnings("ignore:.*:UserWarning:PIL")
def test_bad_images_are_named_and_the_rest_goes_on(tmp_path, tiny):
    good, bad = odd_images.make_folder(tmp_path / "odd")
    mixed = [path for pair in zip(good, bad) for path in pair] + good[len(bad) :] + bad[len(good) :]
    found = list(ImageEncoder(tiny, batch_size=3).stream(mixed))
    assert [position for position, _ in found] == list(range(len(mixed)))
    for path, (_, vector) in zip(mixed, found):
        if path in bad:
            assert isinstance(vector, UnreadableImage), path
            assert str(path) in str(vector)
        else:
            assert np.isfinite(vector).all(), (path, vector)
    with refuses("empty"):
        ImageEncoder(tiny).transform([good[0], tmp_path / "odd" / "empty.jpg"])


def test_what_is_no_image_at_all(tiny):
    with refuses("wrong_type"):
        ImageEncoder(tiny).transform([7])


def test_the_stream_reads_a_bounded_number_ahead(tiny, pictures):
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield pictures[0]

    stream = ImageEncoder(tiny, batch_size=2, threads=2).stream(endless())
    for _ in range(20):
        next(stream)
    assert taken <= 20 + 2 * 2 * 4
    stream.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fishermix-images")]


@pytest.mark.parametrize(
    ("variable", "threads", "wanted"),
    [("3", None, 3), ("", None, 8), ("99", None, 8), ("3", 5, 5), ("3", -1, 3)],
)
def test_the_number_of_threads_is_that_of_the_mixtures(
    tiny, pictures, monkeypatch, variable, threads, wanted
):
    """OMP_NUM_THREADS limits the threads unless a number is given."""
    started = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, max_workers, **options):
            started.append(max_workers)
            super().__init__(max_workers, **options)

    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    monkeypatch.setattr("fishermix_photos.model.image_vectors.ThreadPoolExecutor", Pool)
    ImageEncoder(tiny, threads=threads).transform(pictures[:2])
    assert started == [wanted]


def test_the_key_tells_networks_views_and_preparations_apart(tmp_path, tiny):
    encoders = [
        ImageEncoder(tiny),
        ImageEncoder(tiny, view="flip"),
        ImageEncoder(write_tiny_network(tmp_path / "other", seed=1)),
        ImageEncoder(write_tiny_network(tmp_path / "means", mean=[0, 0, 0])),
    ]
    assert len({encoder.key for encoder in encoders}) == 4
    same = write_tiny_network(tmp_path / "elsewhere")
    assert ImageEncoder(same, batch_size=9, threads=1).key == encoders[0].key


def test_it_is_an_estimator(tiny, pictures):
    encoder = ImageEncoder(tiny, view="center", batch_size=5)
    wanted = encoder.fit(pictures).transform(pictures)
    for copy in (clone(encoder), pickle.loads(pickle.dumps(encoder))):
        assert copy.get_params() == encoder.get_params()
        assert np.array_equal(copy.transform(pictures), wanted)
    assert encoder.get_feature_names_out()[:2].tolist() == ["tiny_0", "tiny_1"]
    changed = encoder.set_params(view="squeeze").transform(pictures)
    assert np.array_equal(changed, ImageEncoder(tiny).transform(pictures))


def test_a_raised_limit_lets_a_large_image_through(tiny, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    large = odd_images.encoded(Image.new("RGB", (100, 80)), "PNG")
    with refuses("too_large"):
        ImageEncoder(tiny).transform([large])
    assert ImageEncoder(tiny, max_pixels=8000).transform([large]).shape == (1, 12)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"size": 0}, "damaged"),
        ({"size": True}, "damaged"),
        ({"mean": [1, 2]}, "damaged"),
        ({"std": [1, 0, 1]}, "damaged"),
        ({"std": [1, float("nan"), 1]}, "damaged"),
        ({"output": None}, "damaged"),
        ({"output": "elsewhere"}, "wrong_network"),
        ({"input": "elsewhere"}, "wrong_network"),
        ({"layout": "HWC"}, "damaged"),
        ({"layout": []}, "damaged"),
        ({"layout": "NHWC"}, "wrong_network"),
        ({"size": 31}, "wrong_network"),
        ({"channels": "GBR"}, "damaged"),
    ],
)
def test_a_wrong_json_is_refused(tmp_path, change, code):
    path = write_tiny_network(tmp_path, **change)
    with refuses(code):
        _ = ImageEncoder(path).n_features


def test_missing_and_damaged_networks_are_explained(tmp_path, tiny, monkeypatch):
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))
    for name in ("no-such-network", str(tmp_path / "no.onnx")):
        with refuses("not_found"):
            _ = ImageEncoder(name).n_features
    tiny.with_suffix(".json").write_text("{")
    with refuses("damaged"):
        _ = ImageEncoder(tiny).key
    tiny.with_suffix(".json").unlink()
    with refuses("wrong_network"):
        _ = ImageEncoder(tiny).key
    tiny.with_suffix(".json").write_text(json.dumps(SIDECAR))
    tiny.write_bytes(b"not a network")
    with refuses("damaged"):
        _ = ImageEncoder(tiny).n_features


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"view": "upside down"}, {"max_pixels": 0}])
def test_wrong_parameters_are_explained(tiny, wrong):
    with refuses("wrong_parameter"):
        ImageEncoder(tiny, **wrong).transform([odd_images.encoded(odd_images.four_colours(), "PNG")])
