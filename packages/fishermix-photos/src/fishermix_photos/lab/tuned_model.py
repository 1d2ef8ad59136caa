"""A model whose image network has learned from captions, from one whose network has not."""

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

SHOWN_PAIRS = 6000  # pairs that show which directions of two spaces matter
TUNED_SHARE = 0.6  # of the tuned maps in the scores; the CCA has the rest


@dataclass(frozen=True)
class TuningSet:
    """A data set of a tuning.

    dataset : photos and sentences; "train" photos are tuned on, "dev" photos choose the ridges
    share : how often its photos are drawn, against those of the other sets
    weight : how much its sentences count; with less than 1, the CCA does not learn from it
    """

    dataset: Dataset
    share: float
    weight: float = 1.0


class ModelTuning:
    """A model to start from, the data sets, and the work folder, where a stopped tuning continues.

    cut : the activations of the graph after which the network learns
    n_words : the vocabulary of the result: all words of the sets, then the first others; None: the model's
    """

    def __init__(
        self,
        model: ImageTextModel,
        sets: Sequence[TuningSet],
        stages: Stages,
        cut: str,
        n_words: int | None = None,
    ):
        self.model, self.sets, self.stages, self.space = model, sets, stages, model.joint_space
        self.dataset = combine([one.dataset for one in sets])
        self.encoder = self._prepare_encoder(n_words)
        self.network = Network.find(model.image_encoder.encoders[0])
        self.graph = onnx.load(self.network.graph)
        outputs = {self.network.output} | {"logits"} & {value.name for value in self.graph.graph.output}
        self.layers = UpperLayers(self.graph, cut, sorted(outputs))
        self.photos = list(dict.fromkeys(map(os.path.realpath, self.dataset.image_paths)))
        self.activations = Activations(stages.folder, self.network, cut, self.photos).open()

    def _prepare_encoder(self, n_words: int | None) -> SentenceEncoder:
        """The model's sentence encoder, with other words if wanted, and a transformer that remembers."""
        encoder = self.model.sentence_encoder
        if n_words is not None:
            encoder = encoder.with_words_of(self.dataset.sentences, n_words)
        if not isinstance(encoder.transformer, SentenceTransformer):
            raise FishermixError("Tuning needs a model with a sentence transformer.")
        self.transformer = encoder.transformer
        return encoder.set_params(transformer=CachedTransformer(self.transformer, self.stages.folder))

    def run(
        self, options: TuningOptions, recipe: Recipe, network: Path, class_names: Sequence[str]
    ) -> ImageTextModel:
        """Tune, write the network to a folder, and solve the joint space again.

        recipe : ridges and powers of the CCA, and the hubness correction
        class_names : of the network's classes, as sentences in the order of its logits; may be none
        """
        network.mkdir(parents=True, exist_ok=True)  # before hours of work
        data = self._gather(class_names)
        maps = self.space._image_map, self.space._image_origin
        start = TunedSpace(self.layers, self.network.output, *maps, data.sentences.shape[1])
        with self.stages.clock("tuning"):
            tuned = Tuning(start, data, options, self.stages.folder).run()
        tuned.layers.write_into(self.graph)
        name = _save_network(self.graph, self.network, network)
        joint = self._solve(tuned, recipe)
        self.encoder.set_params(transformer=self.transformer)  # the work folder may go
        report = {"data": self.dataset.name, "images": self.dataset.counts(), "tuning": asdict(options)}
        images = ImageEncoder(name, view=self.model.image_encoder.view)
        result = ImageTextModel(self.encoder, images, joint, report | {"tuned_share": TUNED_SHARE})
        if self.model.captioner is not None:
            self.model.captioner.model_key = ""  # of any space: it is fine-tuned for this one
            result.captioner = self.model.captioner
        return result

    def _find_rows(self, dataset: Dataset) -> np.ndarray:
        """The row of the activations of each image."""
        positions = {path: row for row, path in enumerate(self.photos)}
        return np.array([positions[os.path.realpath(path)] for path in dataset.image_paths])

    def _gather(self, class_names: Sequence[str]) -> TuningData:
        """All that the tuning reads. A photo of two sets is drawn as one of the first."""
        dataset = self.dataset
        of_sentence = self._find_rows(dataset)[dataset.image_of]
        is_train = dataset.splits[dataset.image_of] == "train"
        order = np.flatnonzero(is_train)[np.argsort(of_sentence[is_train], kind="stable")]
        bounds = np.searchsorted(of_sentence[order], np.arange(len(self.photos) + 1))
        weights = [np.full(len(one.dataset.sentences), one.weight, np.float32) for one in self.sets]
        taken = np.zeros(0, np.int64)
        sources = []
        for one in self.sets:
            sources.append(np.setdiff1d(self._find_rows(one.dataset.part("train")), taken))
            taken = np.union1d(taken, sources[-1])
        total = sum(one.share for one in self.sets)
        return TuningData(
            self.activations,
            self._map_sentences(),
            [order[start:end] for start, end in pairwise(bounds)],
            sources,
            [one.share / total for one in self.sets],
            np.concatenate(weights),
            extend_sentences(self.space, self.encoder.transform(class_names)) if class_names else None,
        )

    def _map_sentences(self) -> np.ndarray:
        """What the sentence side learns from, in a memory-mapped file."""
        width = self.space._sentence_map.shape[1] + self.encoder.n_features - self.space.n_word_features
        shape, done = (len(self.dataset.sentences), width), 0
        file = self.stages.folder / "sentences.npy"
        sentences = np.lib.format.open_memmap(file, "w+", np.float16, shape)
        for block in self.encoder.blocks(self.dataset.sentences):
            sentences[done : done + len(block)] = extend_sentences(self.space, block)
            done += len(block)
        return sentences

    def _solve(self, tuned: TunedSpace, recipe: Recipe) -> JointSpace:
        """The mixture of the tuned maps with a CCA of the tuned vectors, and its hubness correction."""
        start, sets = self.space, [one.dataset for one in self.sets if one.weight >= 1]
        dataset = combine(sets)
        features = encode(tuned, self.activations, self._find_rows(dataset))
        recipe = recipe.with_(n_components=start.projections.x_weights.shape[1])
        widths = list(start.image_widths)
        solved = fit_joint_space(dataset, features, widths, self.encoder, recipe, self.stages)[1]
        with torch.no_grad():
            maps = [one.numpy() for one in (tuned.image_map, tuned.image_origin, tuned.sentence_map)]
        pairs = _draw_pairs(sets, max(SHOWN_PAIRS, recipe.csls_bank_size), recipe.seed)
        images = features[dataset.image_of[pairs]]
        sentences = self.encoder.transform([dataset.sentences[row] for row in pairs])
        spaces = make_tuned_space(start, *maps), solved
        joint = mix_spaces(spaces, TUNED_SHARE, images, sentences, start)
        if not recipe.csls_neighbors:
            return joint
        bank = slice(recipe.csls_bank_size)
        points = joint.image_points(images[bank]), joint.sentence_points(sentences[bank])
        return replace(joint, hubness=HubnessCorrection.from_points(*points, recipe.csls_neighbors))


def _draw_pairs(sets: Sequence[Dataset], n: int, seed: int) -> np.ndarray:
    """Rows of training sentences of combined sets, in random order, about as many of each set."""
    random = np.random.default_rng(seed)
    chosen, start = [], 0
    for one in sets:
        rows = np.flatnonzero(one.splits[one.image_of] == "train")
        chosen.append(start + random.permutation(rows)[: -(-n // len(sets))])
        start += len(one.sentences)
    return random.permutation(np.concatenate(chosen))


def _save_network(graph: onnx.ModelProto, old: Network, folder: Path) -> str:
    """Write the tuned network; returns its name if it can be found by it, or else its folder."""
    write_atomically(folder / GRAPH, graph.SerializeToString(deterministic=True))
    write_atomically(folder / SIDECAR, describe_network(old).encode())
    is_named = folder.absolute().parent in (SHIPPED_NETWORKS.absolute(), added_networks().absolute())
    return folder.name if is_named else str(folder.absolute())
