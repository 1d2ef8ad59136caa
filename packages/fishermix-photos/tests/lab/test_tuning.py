"""Tuning a tiny network: kernels against torch, the graph against onnxruntime, checkpoints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

from fishermix.errors import FishermixError  # noqa: E402
from fishermix.joint import CanonicalProjections, JointSpace  # noqa: E402
from fishermix_photos.lab.cut_network import Activations, cut_graph  # noqa: E402
from fishermix_photos.lab.mixing import extend_sentences, make_tuned_space, mix_spaces  # noqa: E402
from fishermix_photos.lab.tuning import TunedSpace, Tuning, TuningData, TuningOptions  # noqa: E402
from fishermix_photos.lab.upper_layers import DepthwiseFunction, UpperLayers  # noqa: E402
from fishermix_photos.vision.network import Network, describe_network, open_session  # noqa: E402
from fishermix_photos.vision.resnet import Graph  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from PIL import Image  # noqa: E402
from torch.nn import functional  # noqa: E402

SIDE, CLASSES, NAMES = 24, 5, ["features", "logits", "depths"]


def make_network(folder, seed=0):
    """Conv 4 x 4 (the lower part, named `low`), a block with a skip, one of stride 2, a head, classes."""
    random = np.random.default_rng(seed)
    nodes, tensors = [], []

    def conv(source, name, n_out, n_in, size=1, stride=1, group=1, pad=0):
        scale = 1.0 if size > 1 else 0.4
        weights = random.normal(0, scale / np.sqrt(n_in * size), (n_out, n_in, size, size))
        half = numpy_helper.from_array(weights.astype(np.float16), f"{name}.w.half")
        bias = numpy_helper.from_array(random.normal(0.2, 0.1, n_out).astype(np.float32), f"{name}.b")
        tensors.extend([half, bias])
        nodes.append(helper.make_node("Cast", [f"{name}.w.half"], [f"{name}.w"], to=TensorProto.FLOAT))
        options = {"strides": [stride] * 2, "pads": [pad] * 4, "kernel_shape": [size] * 2}
        nodes.append(
            helper.make_node("Conv", [source, f"{name}.w", f"{name}.b"], [name], group=group, **options)
        )
        return name

    def clip(source):
        nodes.append(helper.make_node("Clip", [source, "zero", "six"], [f"{source}.clip"]))
        return f"{source}.clip"

    tensors += [
        numpy_helper.from_array(np.float32(v), name)
        for name, v in (("zero", 0.0), ("six", 6.0), ("third", 0.33))
    ]
    low = conv("image", "low", 16, 3, size=4, stride=4)
    wide = clip(conv(low, "expand", 32, 16))
    deep = clip(conv(wide, "depthwise", 32, 1, size=3, group=32, pad=1))
    nodes.append(helper.make_node("Add", [conv(deep, "project", 16, 32), low], ["sum"]))
    wide = clip(conv("sum", "expand2", 32, 16))
    deep = clip(conv(wide, "depthwise2", 32, 1, size=5, stride=2, group=32, pad=2))
    last = conv(deep, "project2", 16, 32)
    nodes.append(
        helper.make_node(
            "ReduceMean", [clip(conv(last, "head", 24, 16))], ["features"], axes=[2, 3], keepdims=0
        )
    )
    nodes.append(helper.make_node("ReduceMean", [low], ["mean"], axes=[2, 3], keepdims=0))
    nodes.append(helper.make_node("Mul", ["mean", "third"], ["scaled"]))
    nodes.append(helper.make_node("Concat", ["features", "scaled"], ["depths"], axis=1))
    tensors += [
        numpy_helper.from_array(random.normal(size=(24, CLASSES)).astype(np.float32).T.copy(), "fc.w"),
        numpy_helper.from_array(np.zeros(CLASSES, np.float32), "fc.b"),
    ]
    nodes.append(helper.make_node("Gemm", ["features", "fc.w", "fc.b"], ["logits"], transB=1))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        for name in ("features", "logits", "depths")
    ]
    graph = helper.make_graph(nodes, "tiny", [image], outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "encoder.onnx")
    network = Network(
        graph=folder / "encoder.onnx",
        size=SIDE,
        mean=(127.0,) * 3,
        std=(64.0,) * 3,
        output="depths",
        input="image",
    )
    (folder / "encoder.json").write_text(describe_network(network))
    return Network.find(folder)


@pytest.mark.parametrize(
    ("size", "channels", "taps", "stride"), [(17, 32, 5, 1), (9, 16, 3, 1), (8, 10, 5, 2), (9, 16, 3, 2)]
)
def test_the_depthwise_convolution_has_the_gradients_of_torch(size, channels, taps, stride):
    torch.manual_seed(0)
    x = torch.randn(3, size, size, channels).bfloat16().requires_grad_()
    weights = (0.1 * torch.randn(channels, 1, taps, taps)).requires_grad_()
    bias = torch.randn(channels).requires_grad_()
    y = DepthwiseFunction.apply(x, weights, bias, stride)
    of_y = torch.randn_like(y)
    y.backward(of_y)
    x2, weights2, bias2 = (one.detach().double().requires_grad_() for one in (x, weights, bias))
    given = x2.permute(0, 3, 1, 2), weights2, bias2
    wanted = functional.conv2d(*given, stride, taps // 2, groups=channels).permute(0, 2, 3, 1)
    wanted.backward(of_y.double())
    pairs = [(y, wanted), (x.grad, x2.grad), (weights.grad, weights2.grad), (bias.grad, bias2.grad)]
    for found, expected in pairs:
        assert (found.double() - expected).norm() < 0.01 * expected.norm()


def test_lower_and_upper_layers_make_the_network_and_tuned_weights_come_back(tmp_path):
    network = make_network(tmp_path / "net")
    images = np.random.default_rng(1).normal(size=(4, 3, SIDE, SIDE)).astype(np.float32)
    (low,) = open_session(cut_graph(network, "low")).run(["low"], {"image": images})
    activations = torch.from_numpy(low.transpose(0, 2, 3, 1).copy())
    graph = onnx.load(network.graph)
    layers = UpperLayers(graph, "low", NAMES)
    for change in (0.0, 0.05):
        with torch.no_grad():
            for weight in layers.weights:
                weight += change * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2))
            found = layers(activations.bfloat16())
        layers.write_into(graph)
        wanted = open_session(graph.SerializeToString()).run(NAMES, {"image": images})
        for name, expected in zip(NAMES, wanted):
            error = np.linalg.norm(found[name].numpy() - expected) / np.linalg.norm(expected)
            assert error < 0.02, (name, change)


def test_layers_of_a_residual_network_are_read():
    """A stride, a dense convolution, a shortcut, rectifiers, the mean and the classifier, as in ResNet-50."""
    random = np.random.default_rng(0)

    def draw(n_out, n_in, size=1):
        scale = 1 / np.sqrt(n_in * size * size)
        return random.normal(0, scale, (n_out, n_in, size, size)), random.normal(0, 0.1, n_out)

    graph = Graph("residual", SIDE)
    low = graph.add_convolution(Graph.INPUT, *draw(16, 3, 4), stride=4)
    deep = graph.add_convolution(low, *draw(8, 16), stride=2)
    deep = graph.add_convolution(deep, *draw(8, 8, 3), padding=1)
    deep = graph.add_convolution(deep, *draw(32, 8), rectify=False)
    value = graph.add_rectified_sum(deep, graph.add_convolution(low, *draw(32, 16), stride=2, rectify=False))
    features = graph.add_mean_over_space(value)
    logits = graph.add_dense(features, random.normal(size=(CLASSES, 32)), np.zeros(CLASSES))
    model = graph.build({"features": features, "logits": logits, "low": low})
    images = random.normal(size=(4, 3, SIDE, SIDE)).astype(np.float32)
    *wanted, activations = open_session(model.SerializeToString()).run(None, {"image": images})
    layers = UpperLayers(model, low, ["features", "logits"])
    found = layers(torch.from_numpy(activations.transpose(0, 2, 3, 1).copy()).bfloat16())
    for values, expected in zip(found.values(), wanted, strict=True):
        error = np.linalg.norm(values.detach().numpy() - expected) / np.linalg.norm(expected)
        assert error < 0.02
    found["features"].sum().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in layers.weights)


def test_a_network_that_cannot_be_read_says_what_it_has(tmp_path):
    network = make_network(tmp_path / "net")
    with pytest.raises(FishermixError, match="no activations named"):
        cut_graph(network, "nowhere")
    graph = onnx.load(network.graph)
    next(node for node in graph.graph.node if node.op_type == "Add").op_type = "Sub"
    with pytest.raises(FishermixError, match="operation Sub"):
        UpperLayers(graph, "low", NAMES)
    graph = onnx.load(network.graph)
    with pytest.raises(FishermixError, match="does not depend"):
        UpperLayers(graph, "sum", NAMES)


def test_activations_continue_where_they_stopped(tmp_path, monkeypatch):
    network = make_network(tmp_path / "net")
    random = np.random.default_rng(0)
    paths = []
    for number in range(9):
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(random.integers(0, 255, (30, 30, 3), np.uint8)).save(paths[-1])
    whole = Activations(tmp_path / "a", network, "low", paths).open()
    assert whole.shape == (9, SIDE // 4, SIDE // 4, 16)
    assert np.abs(whole).sum(axis=(1, 2, 3)).all()
    run = Activations._run
    calls: list = []

    def fail_late(self, session, start):
        if start == 8:
            raise KeyboardInterrupt
        return run(self, session, start)

    monkeypatch.setattr("fishermix_photos.lab.cut_network.BATCHES_BETWEEN_SAVES", 1)
    monkeypatch.setattr(Activations, "_run", fail_late)
    with pytest.raises(KeyboardInterrupt):
        Activations(tmp_path / "b", network, "low", paths).open()
    monkeypatch.setattr(Activations, "_run", lambda *given: calls.append(given) or run(*given))
    np.testing.assert_array_equal(Activations(tmp_path / "b", network, "low", paths).open(), whole)
    assert len(calls) == 1  # only the last batch was missing


def make_tuning(folder, n_photos=64, steps=30):
    """Photos of eight kinds with sentences of eight kinds, in a space where they do not meet yet."""
    network = make_network(folder / "net")
    random = np.random.default_rng(0)
    kinds = np.arange(n_photos) % 8
    size = SIDE // 4
    patterns = random.normal(0, 2, (8, size, size, 16))
    activations = (patterns[kinds] + random.normal(0, 0.3, (n_photos, size, size, 16))).astype(np.float16)
    sentences = (random.normal(size=(8, 12))[kinds] + random.normal(0, 0.1, (n_photos, 12))).astype(
        np.float16
    )
    data = TuningData(
        activations,
        sentences,
        [np.array([row]) for row in range(n_photos)],
        [np.arange(0, n_photos, 2), np.arange(1, n_photos, 2)],
        [0.5, 0.5],
        np.ones(n_photos, np.float32),
        random.normal(size=(CLASSES, 12)).astype(np.float16),
    )
    layers = UpperLayers(onnx.load(network.graph), "low", NAMES)
    space = TunedSpace(layers, "depths", random.normal(size=(40, 8)), np.zeros(8), 12)
    options = TuningOptions(
        steps,
        batch=16,
        learning_rate=3e-3,
        more_sentences=16,
        more_photos=32,
        distilled=4,
        squares=(0.67, 1.0),
        alike=2.0,
    )
    return Tuning(space, data, options, folder / "run")


def test_the_loss_falls_and_a_continued_tuning_is_the_same(tmp_path):
    losses = []
    whole = make_tuning(tmp_path / "a")
    result = whole.run(lambda _, loss: losses.append(loss))
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])

    def stop(tuning, loss):
        if tuning.step == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_tuning(tmp_path / "b").run(stop)
    continued = make_tuning(tmp_path / "b")
    assert continued.step == 12
    again = continued.run()
    for one, other in zip(result.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_sentences_that_mean_the_same_are_not_held_against_a_photo(tmp_path):
    tuning = make_tuning(tmp_path)
    apart = tuning._find_loss(*tuning._draw(0))
    tuning = make_tuning(tmp_path / "again")
    tuning.options = replace(tuning.options, alike=0.5)
    assert tuning._find_loss(*tuning._draw(0)) < apart


def test_a_mixed_space_adds_the_scores_of_both():
    random = np.random.default_rng(0)

    def make_space(d, seed):
        weights = np.random.default_rng(seed)
        shapes = (d,), (20, d), (30, d), (20,), (30,)
        parts = [weights.normal(size=shape) for shape in shapes]
        parts[0] = np.ones(d)
        return JointSpace(CanonicalProjections(*parts), 1.0, image_widths=[20], n_word_features=26)

    start, solved = make_space(8, 1), make_space(8, 2)
    images, sentences = random.normal(size=(50, 20)), random.normal(size=(60, 30)).astype(np.float32)
    extended = extend_sentences(start, sentences)
    assert extended.shape == (60, 8 + 4)
    sentence_map = random.normal(size=(12, 8))
    tuned = make_tuned_space(start, random.normal(size=(20, 8)), random.normal(size=8), sentence_map)
    points = extended @ sentence_map
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    np.testing.assert_allclose(tuned.sentence_points(sentences), points, atol=1e-4)

    same = mix_spaces((tuned, solved), 1.0, images, sentences, start)  # all of the tuned space, turned
    np.testing.assert_allclose(
        same.sentence_points(sentences) @ same.image_points(images).T,
        tuned.sentence_points(sentences) @ tuned.image_points(images).T,
        atol=1e-4,
    )
