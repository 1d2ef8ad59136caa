"""A model whose image network has learned from captions, from one whose network has not."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import torch
from fishermix.errors import FishermixError
from fishermix.joint.hubness import HubnessCorrection
from fishermix.joint.space import JointSpace
from fishermix.progress import progress
from fishermix.saved import write_atomically
from fishermix.text.encoder import SentenceEncoder
from fishermix.text.word_vectors import WordVectors
from fishermix_photos.model.image_encoder import ImageEncoder
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.network import (
    GRAPH,
    SHIPPED_NETWORKS,
    SIDECAR,
    Network,
    added_networks,
    describe_network,
)
from fishermix_photos.model.transformer import SentenceTransformer

from fishermix_lab.datasets.readers import Dataset, combine
from fishermix_lab.phrases import find_phrases, list_phrases
from fishermix_lab.recipe import Recipe
from fishermix_lab.stages import CachedTransformer, Stages
from fishermix_lab.training import fit_joint_space
from fishermix_lab.tuning.cut_network import Activations, PhotoCopy, encode_activations, resize_network
from fishermix_lab.tuning.mixing import extend_sentences, make_tuned_space, mix_spaces
from fishermix_lab.tuning.opposites import write_opposite
from fishermix_lab.tuning.tune import TunedSpace, Tuning, TuningData, TuningOptions
from fishermix_lab.tuning.upper_layers import UpperLayers


@dataclass(frozen=True)
class TuningSet:
    """A data set of a tuning.

    dataset : photos and sentences; "train" photos are tuned on, "dev" photos choose the ridges
    share : how often its photos are drawn, against those of the other sets
    weight : how much its sentences count; with less than 1, the CCA does not learn from it
    copies : the number of copies in which its training photos are met, see `draw_version`; 0: as they are
    """

    dataset: Dataset
    share: float
    weight: float = 1.0
    copies: int = 0


class ModelTuning:
    """A model to start from, the data sets, and the work folder, where a stopped tuning continues.

    cut : the activations of the graph after which the network learns
    n_words : the vocabulary of the result: all words of the sets, then the first others; None: the model's
    vectors : word vectors to choose it from, of the same kind as the model's; None: the model's
    size : the side of the network's input in pixels; None: as it is
    """

    def __init__(
        self,
        model: ImageTextModel,
        sets: Sequence[TuningSet],
        stages: Stages,
        cut: str,
        n_words: int | None = None,
        vectors: WordVectors | None = None,
        size: int | None = None,
    ):
        self.model = model
        self.stages = stages
        self.space = model.joint_space
        self.sets = [replace(one, dataset=_keep_used(one.dataset)) for one in sets]
        self.dataset = combine([one.dataset for one in self.sets])
        self.encoder = self._prepare_encoder(n_words, vectors)
        self.network = Network.find(model.image_encoder.encoders[0])
        if size is not None:
            stages.folder.mkdir(parents=True, exist_ok=True)
            self.network = resize_network(self.network, size, stages.folder)
        self.graph = onnx.load(self.network.graph)
        self.cut = cut
        outputs = {self.network.output} | {"logits"} & {value.name for value in self.graph.graph.output}
        self.layers = UpperLayers(self.graph, cut, sorted(outputs))
        copies = _list_copies(self.sets)
        self.photos = list(copies)
        self.starts = np.cumsum([0, *map(len, copies.values())])  # rows of the activations
        everything = [version for found in copies.values() for version in found]
        self.activations = Activations(
            folder=stages.folder, network=self.network, cut=cut, photos=everything
        ).open()

    def _prepare_encoder(self, n_words: int | None, vectors: WordVectors | None) -> SentenceEncoder:
        """The model's sentence encoder, with other words if wanted, and a transformer that remembers."""
        encoder = self.model.sentence_encoder
        if vectors is not None:
            encoder = copy.copy(encoder).set_params(vectors=vectors)  # it keeps its mixtures
        if n_words is not None:
            encoder = encoder.with_words_of(self.dataset.sentences, n_words)
        if not isinstance(encoder.transformer, SentenceTransformer):
            raise FishermixError("Tuning needs a model with a sentence transformer.", code="wrong_parameter")
        self.transformer = encoder.transformer
        return encoder.set_params(transformer=CachedTransformer(self.transformer, self.stages.folder))

    def run(
        self, options: TuningOptions, recipe: Recipe, network: Path, class_names: Sequence[str]
    ) -> ImageTextModel:
        """Tune, write the network to a folder, and solve the joint space again.

        recipe : ridges and powers of the CCA, and the hubness correction
        class_names : of the network's classes, in the order of its logits; may be none
        """
        network.mkdir(parents=True, exist_ok=True)  # before hours of work
        data = self._gather(options, class_names)
        maps = self.space.left_map, self.space.left_origin
        start = TunedSpace(self.layers, self.network.output, *maps, data.sentences.shape[1])
        with self.stages.clock("tuning"):
            tuned = Tuning(space=start, data=data, options=options, folder=self.stages.folder).run()
        tuned.layers.write_into(self.graph)
        name = _save_network(self.graph, self.network, network)
        joint = self._solve(tuned, options.cca * options.toward, recipe)
        self.encoder.set_params(transformer=self.transformer)  # the work folder may go
        report = {"data": self.dataset.name, "images": self.dataset.counts(), "tuning": asdict(options)}
        images = ImageEncoder(name, view=self.model.image_encoder.view)
        result = ImageTextModel(
            sentence_encoder=self.encoder,
            image_encoder=images,
            joint_space=joint,
            report=report,
        )
        if self.model.captioner is not None:
            self.model.captioner.model_key = ""  # of any space: it is fine-tuned for this one
            result.captioner = self.model.captioner
        return result

    def _find_photos(self, dataset: Dataset) -> np.ndarray:
        """The number of each image among `photos`."""
        numbers = {path: number for number, path in enumerate(self.photos)}
        return np.array([numbers[os.path.realpath(path)] for path in dataset.image_paths])

    def _gather(self, options: TuningOptions, class_names: Sequence[str]) -> TuningData:
        """All that the tuning reads. A photo of two sets is drawn as one of the first."""
        dataset = self.dataset
        of_sentence = self._find_photos(dataset)[dataset.image_of]
        is_train = dataset.splits[dataset.image_of] == "train"
        order = np.flatnonzero(is_train)[np.argsort(of_sentence[is_train], kind="stable")]
        bounds = np.searchsorted(of_sentence[order], np.arange(len(self.photos) + 1))
        weights = [np.full(len(one.dataset.sentences), one.weight, np.float32) for one in self.sets]
        taken = np.zeros(0, np.int64)
        sources = []
        for one in self.sets:
            sources.append(np.setdiff1d(self._find_photos(one.dataset.part("train")), taken))
            taken = np.union1d(taken, sources[-1])
        total = sum(one.share for one in self.sets)
        data = TuningData(
            activations=self.activations,
            rows_of=[np.arange(*bounds) for bounds in pairwise(self.starts)],
            sentences=self._map_sentences("sentences", dataset.sentences),
            sentences_of=[order[start:end] for start, end in pairwise(bounds)],
            sources=sources,
            shares=[one.share / total for one in self.sets],
            weight_of=np.concatenate(weights),
        )
        if options.opposites:
            random = np.random.default_rng(options.seed)
            written = [write_opposite(sentence, random) for sentence in dataset.sentences]
            texts = [text for text in written if text is not None]
            numbers = np.cumsum([text is not None for text in written]) - 1
            rows = np.where([text is not None for text in written], numbers, -1)
            data = replace(data, opposites=self._map_sentences("opposites", texts), opposite_of=rows)
        if options.phrases:
            sentences = [dataset.sentences[row] for row in order]
            fewest = 12  # photos
            most = int(is_train.sum()) // 25  # photos, by the number of training sentences
            found, has = list_phrases(sentences, of_sentence[order], len(self.photos), fewest, most)
            data = replace(data, phrases=self._map_sentences("phrases", found), has_phrase=has)
        if class_names:
            forms = [
                self._map_sentences("classes", map(form.format, class_names))
                for form in ("{}", "a {}", "a photo of a {}")
            ]
            data = replace(data, class_names=np.stack([np.array(form) for form in forms]))
        return data

    def _map_sentences(self, name: str, texts: Iterable[str]) -> np.ndarray:
        """What the sentence side learns from, in a memory-mapped file."""
        texts = list(texts)
        width = self.space.right_map.shape[1] + self.encoder.n_features - self.space.right_optional
        done = 0
        file = self.stages.folder / f"{name}.npy"
        rows = np.lib.format.open_memmap(file, "w+", np.float16, (len(texts), width))
        with progress(f"encoding {name}", len(texts)) as bar:
            for block in self.encoder.blocks(texts):
                rows[done : done + len(block)] = extend_sentences(self.space, block)
                done += len(block)
                bar.advance(len(block))
        return rows

    def _solve(self, tuned: TunedSpace, cca_share: float, recipe: Recipe) -> JointSpace:
        """The tuned maps, mixed with a CCA of the tuned vectors if it has a share in the scores, and the
        hubness correction.
        """
        start = self.space
        sets = [one.dataset for one in self.sets if one.weight >= 1]
        dataset = combine(sets)
        n_shown = 6000  # pairs that show which directions of two spaces matter
        pairs = _draw_pairs(sets, max(n_shown, recipe.csls_bank_size), recipe.seed)
        texts = [dataset.sentences[row] for row in pairs]
        sentences = self.encoder.transform(texts)
        with torch.no_grad():
            maps = [one.numpy() for one in (tuned.image_map, tuned.image_origin, tuned.sentence_map)]
        joint = make_tuned_space(start, *maps)
        if cca_share:
            features = self._encode_photos(dataset, np.arange(len(dataset)))
            recipe = recipe.with_(n_components=start.projections.x_weights.shape[1])
            widths = list(start.left_widths)
            solved = fit_joint_space(dataset, features, widths, self.encoder, recipe, self.stages)[1]
            images = features[dataset.image_of[pairs]]
            joint = mix_spaces((joint, solved), 1 - cca_share, images, sentences, start)
        else:
            images = self._encode_photos(dataset, dataset.image_of[pairs])
        if not recipe.csls_neighbors:
            return joint
        phrases = self.encoder.transform(_draw_phrases(texts, recipe.csls_bank_size // 2, recipe.seed))
        asked = np.vstack([sentences[: recipe.csls_bank_size - len(phrases)], phrases])
        points = joint.embed_left(images[: recipe.csls_bank_size]), joint.embed_right(asked)
        return replace(joint, hubness=HubnessCorrection.from_embeddings(*points, recipe.csls_neighbors))

    def _encode_photos(self, dataset: Dataset, photos: np.ndarray) -> np.ndarray:
        """The tuned network's vectors of some photos of a data set, from the first copy of each."""
        rows = self.starts[self._find_photos(dataset)[photos]]
        return encode_activations(self.graph, self.cut, self.network.output, self.activations, rows)


def _keep_used(dataset: Dataset) -> Dataset:
    """The photos to learn from and to choose by."""
    return dataset.select(np.flatnonzero(np.isin(dataset.splits, ("train", "dev"))))


def _list_copies(sets: Sequence[TuningSet]) -> dict[str, list[PhotoCopy]]:
    """The copies of each photo. A photo of two sets has those of the first; one to choose by is as it is."""
    copies: dict[str, list[PhotoCopy]] = {}
    for one in sets:
        for path, split in zip(one.dataset.image_paths, one.dataset.splits):
            real = os.path.realpath(path)
            if real not in copies:
                numbers = range(one.copies) if split == "train" else range(0)
                copies[real] = [PhotoCopy(real, number) for number in numbers] or [PhotoCopy(real)]
    return copies


def _draw_pairs(sets: Sequence[Dataset], n: int, seed: int) -> np.ndarray:
    """Rows of training sentences of combined sets, in random order, about as many of each set."""
    random = np.random.default_rng(seed)
    chosen = []
    start = 0
    for one in sets:
        rows = np.flatnonzero(one.splits[one.image_of] == "train")
        chosen.append(start + random.permutation(rows)[: -(-n // len(sets))])
        start += len(one.sentences)
    return random.permutation(np.concatenate(chosen))


def _draw_phrases(sentences: Sequence[str], n: int, seed: int) -> list[str]:
    """At most n of the phrases of some sentences: a photo may be a hub of short queries, too."""
    found = list(dict.fromkeys(phrase for text in sentences for phrase in find_phrases(text)))
    chosen = np.random.default_rng(seed).permutation(len(found))[:n]
    return [found[number] for number in chosen]


def _save_network(graph: onnx.ModelProto, old: Network, folder: Path) -> str:
    """Write the tuned network; returns its name if it can be found by it, or else its folder."""
    write_atomically(folder / GRAPH, graph.SerializeToString(deterministic=True))
    write_atomically(folder / SIDECAR, describe_network(old).encode())
    is_named = folder.absolute().parent in (SHIPPED_NETWORKS.absolute(), added_networks().absolute())
    return folder.name if is_named else str(folder.absolute())
