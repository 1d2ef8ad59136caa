"""`tune_model`: a model whose image network has learned from captions, from one whose network has not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import torch
from fishermix.errors import FishermixError
from fishermix.joint import HubnessCorrection, JointSpace
from fishermix.storage import write_atomically
from fishermix.text.encoder import SentenceEncoder
from fishermix.text.word_vectors import WordVectors

from fishermix_photos.lab.cut_network import Activations
from fishermix_photos.lab.datasets import Dataset, combine
from fishermix_photos.lab.mixing import extend_sentences, make_tuned_space, mix_spaces
from fishermix_photos.lab.recipe import Recipe
from fishermix_photos.lab.stages import CachedTransformer, Stages
from fishermix_photos.lab.training import fit_joint_space
from fishermix_photos.lab.tuning import TunedSpace, Tuning, TuningData, TuningOptions, encode
from fishermix_photos.lab.upper_layers import UpperLayers
from fishermix_photos.model import ImageTextModel
from fishermix_photos.transformer import SentenceTransformer
from fishermix_photos.vision.encoder import ImageEncoder
from fishermix_photos.vision.network import (
    GRAPH,
    SHIPPED_NETWORKS,
    SIDECAR,
    Network,
    added_networks,
    describe_network,
)

CUT = "/_blocks.13/Add_output_0"  # EfficientNet-lite2: the upper third learns
SHOWN = 6000  # pairs that show which directions of two spaces matter
PROMPT = "a photo of a {}"


@dataclass(frozen=True)
class TuningSet:
    """A data set of a tuning.

    dataset : photos and sentences; "train" photos are tuned on, "dev" photos choose the ridges
    share : how often its photos are drawn, against those of the other sets
    weight : how much its sentences count
    solve : whether the CCA learns from it too
    """

    dataset: Dataset
    share: float
    weight: float = 1.0
    solve: bool = True


def tune_model(
    model: ImageTextModel,
    sets: Sequence[TuningSet],
    network: str | os.PathLike,
    recipe: Recipe,
    options: TuningOptions,
    stages: Stages,
    vectors: WordVectors | None = None,
    n_words: int | None = None,
    class_names: Sequence[str] = (),
    tuned_share: float = 0.6,
    cut: str = CUT,
) -> ImageTextModel:
    """Tune the upper layers of a model's image network, and solve the joint space again.

    The axes of the space stay nearly the same. So the result has the captioner of the model, to be trained
    further with the recipe "fine-tune".

    Parameters
    ----------
    model : ImageTextModel
        The model to start from. It has one image network.
    sets : sequence of TuningSet
        Photos and their sentences.
    network : path
        The folder to write the tuned network to.
    recipe : Recipe
        The ridges and the powers of the CCA, and the hubness correction.
    options : TuningOptions
        How to tune.
    stages : Stages
        The folder for activations, sentence vectors and the checkpoint; a stopped tuning continues there.
    vectors : WordVectors, optional
        Word vectors in place of the model's; they must be of the same space.
    n_words : int, optional
        The vocabulary of the model: all words of the sets, then the first others.
    class_names : sequence of str
        The names of the network's classes, in the order of its logits; none: without this term.
    tuned_share : float
        The share of the tuned maps in the scores; the CCA has the rest.
    cut : str
        The activations of the graph after which the network learns.
    """
    Path(network).mkdir(parents=True, exist_ok=True)  # before hours of work
    space, old = model.joint_space, Network.find(model.image_encoder.encoders[0])
    dataset = combine([one.dataset for one in sets])
    encoder = _prepare_encoder(model, dataset.sentences, vectors, n_words, stages)
    paths, rows = _find_photos(dataset)
    activations = Activations(stages.folder, old, cut, paths).open()
    data = _gather(sets, dataset, rows, space, encoder, stages, activations, class_names)
    graph = onnx.load(old.graph)
    layers = UpperLayers(graph, cut)
    tuned = TunedSpace(layers, old.output, space._image_map, space._image_origin, data.sentences.shape[1])
    with stages.clock("tuning"):
        tuned = Tuning(tuned, data, options, stages.folder).run()
    tuned.layers.write_into(graph)
    image_encoder = ImageEncoder(_save_network(graph, old, Path(network)), view=model.image_encoder.view)
    solved_sets = combine([one.dataset for one in sets if one.solve])
    positions = {path: row for row, path in enumerate(paths)}
    solved_rows = np.array([positions[os.path.realpath(path)] for path in solved_sets.image_paths])
    features = encode(tuned, activations, solved_rows)
    recipe = recipe.with_(n_components=space.projections.x_weights.shape[1])
    _, solved = fit_joint_space(solved_sets, features, list(space.image_widths), encoder, recipe, stages)
    joint = _mix(tuned, space, solved, tuned_share, solved_sets, features, encoder, recipe)
    if recipe.csls_neighbors:
        sizes = [len(one.dataset.sentences) for one in sets if one.solve]
        joint = replace(joint, hubness=_draw_banks(joint, solved_sets, sizes, features, encoder, recipe))
    if isinstance(encoder.transformer, CachedTransformer):  # the work folder may go
        encoder.set_params(transformer=encoder.transformer.transformer)
    report = {"data": dataset.name, "images": dataset.counts(), "tuning": asdict(options)}
    result = ImageTextModel(encoder, image_encoder, joint, report | {"tuned_share": tuned_share})
    if model.captioner is not None:
        model.captioner.model_key = ""  # of any space: it is fine-tuned for this one
        result.captioner = model.captioner
    return result


def _prepare_encoder(
    model: ImageTextModel,
    sentences: Sequence[str],
    vectors: WordVectors | None,
    n_words: int | None,
    stages: Stages,
) -> SentenceEncoder:
    """The model's sentence encoder, with other words if they are given, and a transformer that remembers."""
    encoder = model.sentence_encoder
    if vectors is not None:
        encoder.set_params(vectors=vectors)
    if n_words is not None:
        encoder = encoder.with_words_of(sentences, n_words)
    if not isinstance(encoder.transformer, SentenceTransformer):
        raise FishermixError("Tuning needs a model with a sentence transformer.")
    return encoder.set_params(transformer=CachedTransformer(encoder.transformer, stages.folder))


def _find_photos(dataset: Dataset) -> tuple[list[str], np.ndarray]:
    """The different photo files, and which of them each image of the data set is."""
    files = [os.path.realpath(path) for path in dataset.image_paths]
    positions = {path: row for row, path in enumerate(dict.fromkeys(files))}
    return list(positions), np.array([positions[path] for path in files])


def _gather(
    sets: Sequence[TuningSet],
    dataset: Dataset,
    rows: np.ndarray,
    space: JointSpace,
    encoder: SentenceEncoder,
    stages: Stages,
    activations: np.ndarray,
    class_names: Sequence[str],
) -> TuningData:
    """All that the tuning reads. A photo of two sets is drawn as one of the first."""
    width = space.projections.x_weights.shape[1] + encoder.n_features - space.n_word_features
    sentences = np.lib.format.open_memmap(
        stages.folder / "sentences.npy", "w+", np.float16, (len(dataset.sentences), width)
    )
    done = 0
    for block in encoder.blocks(dataset.sentences):
        sentences[done : done + len(block)] = extend_sentences(space, block)
        done += len(block)
    of_sentence = rows[dataset.image_of]
    is_train = dataset.splits[dataset.image_of] == "train"
    order = np.flatnonzero(is_train)[np.argsort(of_sentence[is_train], kind="stable")]
    bounds = np.searchsorted(of_sentence[order], np.arange(len(activations) + 1))
    sentences_of = [order[start:end] for start, end in pairwise(bounds)]
    weights = np.repeat(
        np.array([one.weight for one in sets], np.float32), [len(one.dataset.sentences) for one in sets]
    )
    taken = np.zeros(len(activations), bool)
    sources, start = [], 0
    for one in sets:
        of_set = rows[start : start + len(one.dataset)][one.dataset.splits == "train"]
        sources.append(np.unique(of_set[~taken[of_set]]))
        taken[of_set] = True
        start += len(one.dataset)
    names = None
    if class_names:
        names = extend_sentences(space, encoder.transform([PROMPT.format(name) for name in class_names]))
    shares = np.array([one.share for one in sets])
    return TuningData(
        activations, sentences, sentences_of, sources, list(shares / shares.sum()), weights, names
    )


def _save_network(graph: onnx.ModelProto, old: Network, folder: Path) -> str:
    """Write the tuned network; returns its name if it can be found by it, or else its folder."""
    write_atomically(folder / GRAPH, graph.SerializeToString(deterministic=True))
    write_atomically(folder / SIDECAR, describe_network(old).encode())
    is_named = folder.absolute().parent in (SHIPPED_NETWORKS.absolute(), added_networks().absolute())
    return folder.name if is_named else str(folder.absolute())


def _mix(
    tuned: TunedSpace,
    start: JointSpace,
    solved: JointSpace,
    share: float,
    dataset: Dataset,
    features: np.ndarray,
    encoder: SentenceEncoder,
    recipe: Recipe,
) -> JointSpace:
    """The mixture of both spaces."""
    with torch.no_grad():
        maps = [one.numpy() for one in (tuned.image_map, tuned.image_origin, tuned.sentence_map)]
    is_train = np.flatnonzero(dataset.splits[dataset.image_of] == "train")
    pairs = np.random.default_rng(recipe.seed).permutation(is_train)[:SHOWN]
    shown = features[dataset.image_of[pairs]], encoder.transform([dataset.sentences[row] for row in pairs])
    return mix_spaces(make_tuned_space(start, *maps), solved, share, *shown, start)


def _draw_banks(
    space: JointSpace,
    dataset: Dataset,
    sizes: Sequence[int],
    features: np.ndarray,
    encoder: SentenceEncoder,
    recipe: Recipe,
) -> HubnessCorrection:
    """A hubness correction with as many training photos and sentences of each set; `sizes` of the sets."""
    random = np.random.default_rng(recipe.seed)
    is_train = dataset.splits[dataset.image_of] == "train"
    ends = np.cumsum(sizes)
    chosen = np.concatenate(
        [
            random.permutation(start + np.flatnonzero(is_train[start:end]))[
                : recipe.csls_bank_size // len(sizes)
            ]
            for start, end in zip(ends - sizes, ends)
        ]
    )
    sentences = encoder.transform([dataset.sentences[row] for row in chosen])
    points = space.image_points(features[dataset.image_of[chosen]]), space.sentence_points(sentences)
    return HubnessCorrection.from_points(*points, recipe.csls_neighbors)
