"""Tuning a tiny network: kernels against torch, the graph against onnxruntime, checkpoints."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from refuses import refuses

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

from fishermix.errors import FishermixError  # noqa: E402
from fishermix.joint.projections import CanonicalProjections  # noqa: E402
from fishermix.joint.space import JointSpace  # noqa: E402
from fishermix_lab.resnet import Graph  # noqa: E402
from fishermix_lab.tuning.cut_network import Activations, PhotoCopy, cut_graph  # noqa: E402
from fishermix_lab.tuning.losses import contrast, contrast_many  # noqa: E402
from fishermix_lab.tuning.mixing import extend_sentences, make_tuned_space, mix_spaces  # noqa: E402
from fishermix_lab.tuning.opposites import write_opposite  # noqa: E402
from fishermix_lab.tuning.tune import TunedSpace, Tuning, TuningData, TuningOptions  # noqa: E402
from fishermix_lab.tuning.upper_layers import DepthwiseFunction, UpperLayers  # noqa: E402
from fishermix_lab.tuning.versions import draw_version  # noqa: E402
from fishermix_photos.model.network import Network, describe_network, open_session  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from PIL import Image, ImageChops  # noqa: E402
from scipy.sparse import csr_array  # noqa: E402
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
    with refuses("wrong_network"):
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
    for number in range(3):
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(random.integers(0, 255, (30, 30, 3), np.uint8)).save(paths[-1])
    photos = [PhotoCopy(path, number) for path in paths[:3] for number in (None, 0, 1)]
    whole = Activations(tmp_path / "a", network, "low", photos).open()
    assert whole.shape == (9, SIDE // 4, SIDE // 4, 16)
    assert np.abs(whole).sum(axis=(1, 2, 3)).all()
    run = Activations._run
    calls: list = []

    def fail_late(self, session, start):
        if start == 8:
            raise KeyboardInterrupt
        return run(self, session, start)

    monkeypatch.setattr("fishermix_lab.tuning.cut_network.BATCHES_BETWEEN_SAVES", 1)
    monkeypatch.setattr(Activations, "_run", fail_late)
    with pytest.raises(KeyboardInterrupt):
        Activations(tmp_path / "b", network, "low", photos).open()
    monkeypatch.setattr(Activations, "_run", lambda *given: calls.append(given) or run(*given))
    np.testing.assert_array_equal(Activations(tmp_path / "b", network, "low", photos).open(), whole)
    assert len(calls) == 1  # only the last batch was missing


def make_tuning(folder, n_photos=64, steps=30, toward=1.0):
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
    copies = (patterns[kinds] + random.normal(0, 0.3, (n_photos, size, size, 16))).astype(np.float16)
    rows = np.arange(n_photos)
    data = TuningData(
        activations=np.concatenate([activations, copies]),
        rows_of=[np.array([row, n_photos + row]) for row in rows],
        sentences=sentences,
        sentences_of=[np.array([row]) for row in rows],
        sources=[rows[::2], rows[1::2]],
        shares=[0.5, 0.5],
        weight_of=np.ones(n_photos, np.float32),
        opposites=(-sentences).astype(np.float16),
        opposite_of=np.where(rows % 3, rows, -1),
        phrases=random.normal(size=(4, 12)).astype(np.float16),
        has_phrase=csr_array(kinds[:, None] // 2 == np.arange(4)),
        class_names=random.normal(size=(2, CLASSES, 12)).astype(np.float16),
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
        near=2.0,
        more_phrases=4,
        copied=4,
        toward=toward,
    )
    return Tuning(space, data, options, folder / "run")


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_result_is_between_the_start_and_the_tuned_weights(tmp_path):
    tuning = make_tuning(tmp_path, toward=0.25)
    before = [weight.detach().clone() for weight in tuning.space.parameters()]
    result = tuning.run()
    for weight, at_start, tuned in zip(result.parameters(), before, tuning.average.parameters(), strict=True):
        torch.testing.assert_close(weight, 0.75 * at_start + 0.25 * tuned)
    continued = make_tuning(tmp_path, toward=0.25)  # from the checkpoint of a finished tuning
    for one, other in zip(result.parameters(), continued.run().parameters(), strict=True):
        assert torch.equal(one, other)


def test_sentences_that_mean_the_same_are_not_held_against_a_photo(tmp_path):
    tuning = make_tuning(tmp_path)
    apart = tuning._find_loss(tuning._draw(0))
    tuning = make_tuning(tmp_path / "again")
    tuning.options = replace(tuning.options, alike=0.5)
    assert tuning._find_loss(tuning._draw(0)) < apart


def test_answers_of_other_sources_do_not_count(tmp_path):
    """With a source for each kind, a photo has no wrong answer at all."""
    tuning = make_tuning(tmp_path)
    kinds = np.arange(64) % 8
    of_kinds = [np.flatnonzero(kinds == kind) for kind in range(8)]
    tuning.data = replace(tuning.data, sources=of_kinds, shares=[1 / 8] * 8, opposites=None)
    alone = {"phrases": 0.0, "copies": 0.0, "distill": 0.0, "classes": 0.0}
    tuning.options = replace(tuning.options, within_sources=True, alike=0.5, **alone)
    assert tuning._find_loss(tuning._draw(0)) < 1e-3
    tuning.options = replace(tuning.options, within_sources=False, alike=2.0)
    assert tuning._find_loss(tuning._draw(0)) > 1


def test_a_photo_is_met_in_all_its_copies(tmp_path):
    tuning = make_tuning(tmp_path)
    tuning.options = replace(tuning.options, squares=(1.0,))
    whole = torch.from_numpy(tuning.data.activations).bfloat16()
    met = set()
    for step in range(40):
        batch = tuning._draw(step)
        assert len(batch.copied) == 4
        of_pixels = np.concatenate([batch.photos, batch.photos[batch.copied]])
        rows = []
        for photo, seen in zip(of_pixels, batch.activations, strict=True):
            of_photo = tuning.data.rows_of[photo]
            rows.append(
                next(
                    r for r in of_photo if any(torch.equal(seen, one) for one in (whole[r], whole[r].flip(1)))
                )
            )
        first, again = np.array(rows[:16])[batch.copied], np.array(rows[16:])
        assert (first != again).all()
        assert (first % 64 == again % 64).all()
        met.update(rows)
    assert len(met) > 120


def test_contrast_is_the_negative_log_of_the_share_of_the_right_answer():
    torch.manual_seed(0)
    scores, weights = torch.randn(3, 5), torch.tensor([1.0, 0.5, 2.0])
    right = torch.tensor([0, 3, 2])
    possible = torch.rand(3, 5) < 0.6
    total = 0.0
    for row in range(3):
        others = [scores[row, c].exp() for c in range(5) if possible[row, c] and c != right[row]]
        own = scores[row, right[row]].exp()
        total += weights[row] * -torch.log(own / (own + sum(others)))
    assert torch.allclose(contrast(scores, right, possible, weights), total / weights.sum(), atol=1e-5)


def test_several_right_answers_are_not_held_against_each_other():
    torch.manual_seed(0)
    scores = torch.randn(4, 6)
    right = torch.tensor([[1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0] * 6, [0, 0, 0, 1, 1, 1]]).bool()
    wrong = ~right & (torch.rand(4, 6) < 0.7)
    of_rows = []
    for row in (0, 1, 3):
        below = sum(scores[row, c].exp() for c in range(6) if wrong[row, c])
        shares = [scores[row, c].exp() / (scores[row, c].exp() + below) for c in range(6) if right[row, c]]
        of_rows.append(-torch.log(torch.stack(shares)).mean())
    assert torch.allclose(contrast_many(scores, right, wrong), torch.stack(of_rows).mean(), atol=1e-5)
    assert contrast_many(scores, torch.zeros_like(right), wrong) == 0


def test_an_opposite_changes_one_word_that_the_caption_has_alone():
    random = np.random.default_rng(0)
    changed = {write_opposite("A red car near two dogs", random) for _ in range(200)}
    assert None not in changed
    for text in changed:
        words = [
            (a, b)
            for a, b in zip(["a", "red", "car", "near", "two", "dogs"], text.split(), strict=True)
            if a != b
        ]
        assert len(words) == 1
        assert words[0][0] in ("red", "two")
    assert write_opposite("a man and a woman", random) is None
    assert write_opposite("a tree", random) is None


def test_versions_are_drawn_by_name_and_number_and_change_the_pixels(tmp_path):
    photo = Image.effect_mandelbrot((400, 300), (-2, -1, 1, 1), 100).convert("RGB")
    drawn = [draw_version(f"photo{number}.jpg", copy) for number in range(60) for copy in range(3)]
    assert drawn == [
        draw_version(f"/elsewhere/photo{number}.jpg", copy) for number in range(60) for copy in range(3)
    ]
    versions = [version for version in drawn if version is not None]
    assert 0.1 < 1 - len(versions) / len(drawn) < 0.3
    assert {type(version.write(photo)) for version in versions[:40]} == {bytes, Image.Image}
    small = [version for version in versions if version.short_side < 300]
    assert 30 < len(small) < len(versions)
    for version in small[:20]:
        written = version.write(photo)
        copy = Image.open(BytesIO(written)) if isinstance(written, bytes) else written
        assert min(copy.size) == version.short_side
        wanted = photo.resize(copy.size)
        assert np.asarray(ImageChops.difference(copy.convert("RGB"), wanted)).mean() < 40


def test_a_mixed_space_adds_the_scores_of_both():
    random = np.random.default_rng(0)

    def make_space(d, seed):
        weights = np.random.default_rng(seed)
        shapes = (d,), (20, d), (30, d), (20,), (30,)
        parts = [weights.normal(size=shape) for shape in shapes]
        parts[0] = np.ones(d)
        return JointSpace(CanonicalProjections(*parts), 1.0, left_widths=[20], right_optional=26)

    start, solved = make_space(8, 1), make_space(8, 2)
    images, sentences = random.normal(size=(50, 20)), random.normal(size=(60, 30)).astype(np.float32)
    extended = extend_sentences(start, sentences)
    assert extended.shape == (60, 8 + 4)
    sentence_map = random.normal(size=(12, 8))
    tuned = make_tuned_space(start, random.normal(size=(20, 8)), random.normal(size=8), sentence_map)
    points = extended @ sentence_map
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    np.testing.assert_allclose(tuned.embed_right(sentences), points, atol=1e-4)

    same = mix_spaces((tuned, solved), 1.0, images, sentences, start)  # all of the tuned space, turned
    np.testing.assert_allclose(
        same.embed_right(sentences) @ same.embed_left(images).T,
        tuned.embed_right(sentences) @ tuned.embed_left(images).T,
        atol=1e-4,
    )
