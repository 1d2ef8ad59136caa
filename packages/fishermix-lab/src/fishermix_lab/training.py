"""Training a model, stage by stage: words, mixtures, image features, the joint space."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from fishermix.cca.covariances import CovarianceSums
from fishermix.cca.dual import ROWS_IN_DOUBLE, GramSums, choose_method
from fishermix.cca.estimator import RegularizedCCA
from fishermix.errors import FishermixError
from fishermix.joint.hubness import HubnessCorrection
from fishermix.joint.projections import CanonicalProjections
from fishermix.joint.ranks import Figures, figures, recall_sum, task_ranks
from fishermix.joint.space import JointSpace, prepare_features
from fishermix.mixture import Mixture
from fishermix.mixture.families import REGISTERED, Family, check_family, is_custom, register_family
from fishermix.saved import FolderKind, Struct, load_folder, save_folder
from fishermix.text.encoder import SentenceEncoder
from fishermix.text.sentences import WHITENING_TENSORS
from fishermix.text.whitening import Whitening
from fishermix.text.word_vectors import WordVectors
from fishermix_photos.model.image_encoder import ImageEncoder
from fishermix_photos.model.image_vectors import DEFAULT_VIEW
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.transformer import SentenceTransformer

from fishermix_lab.datasets.readers import Dataset
from fishermix_lab.features import extract
from fishermix_lab.recipe import Recipe
from fishermix_lab.stages import CachedTransformer, Stages, make_key, open_stages


class NoFields(Struct):
    """A finished whitening is all in its tensors."""


WHITENING = FolderKind("whitening", 1, NoFields, WHITENING_TENSORS)


def train_model(
    dataset: Dataset,
    vectors: WordVectors | str | os.PathLike,
    recipe: Recipe,
    work: Stages | str | os.PathLike | None = None,
    n_words: int | None = None,
) -> ImageTextModel:
    """Train on the "train" images of a data set; its "dev" images choose the ridges and the power.

    Parameters
    ----------
    dataset : Dataset
        Photos and their sentences. Without "dev" images, a tenth of the training images are held out.
    vectors : WordVectors or path
        The word vectors.
    recipe : Recipe
        What to train.
    work : path, optional
        The folder where finished stages are kept, so that an interrupted training continues.
    n_words : int, optional
        The vocabulary of the model: all words of the data set, then the most frequent others. Default: all.

    Returns
    -------
    model : ImageTextModel
        Its `report` says what was chosen and how long each stage took.

    Examples
    --------
    >>> from fishermix_lab.datasets.readers import open_dataset
    >>> from fishermix_lab.recipe import find_recipe
    >>> recipe = find_recipe("paper").with_(mixture_components=2)
    >>> model = train_model(open_dataset("flickr8k:DIR"), ".cache/word2vec", recipe, work="work")
    >>> model.encode_text(["a dog"]).shape[0]
    1
    """
    vectors = vectors if isinstance(vectors, WordVectors) else WordVectors.load(vectors)
    sentences, dataset = dataset.sentences, with_dev(dataset, recipe.seed)
    dataset = dataset.select(np.flatnonzero(np.isin(dataset.splits, ("train", "dev"))))
    with open_stages(work) as stages, stages.hold():
        encoder = fit_sentence_encoder(vectors, recipe, stages)
        image_encoder = ImageEncoder(recipe.encoders, view=recipe.view or DEFAULT_VIEW)
        with stages.clock("image features"):
            dataset, features = image_features(dataset, image_encoder, stages.folder / "features")
        cca, space = fit_joint_space(dataset, features, image_encoder.widths, encoder, recipe, stages)
        if isinstance(encoder.transformer, CachedTransformer):  # the work folder may go
            encoder.set_params(transformer=encoder.transformer.transformer)
        if n_words is not None:
            encoder = encoder.with_words_of(sentences, n_words)
        return ImageTextModel(encoder, image_encoder, space, _make_report(dataset, cca, recipe, stages))


def _make_report(dataset: Dataset, cca: RegularizedCCA, recipe: Recipe, stages: Stages) -> dict[str, Any]:
    """What was trained, what was chosen, and how long each stage took."""
    return {
        "data": dataset.name,
        "images": dataset.counts(),
        "reg_x": cca.reg_x,
        "reg_y": cca.reg_y,
        "scale": cca.correlation_power,
        "seconds": {name: round(value, 1) for name, value in stages.seconds.items()},
        "recipe": json.loads(json.dumps(recipe.describe())),  # lists in place of tuples
    }


def rank_answers(
    model: ImageTextModel, dataset: Dataset, work: str | os.PathLike | None = None
) -> dict[str, np.ndarray]:
    """The rank of the first right answer of every query of the three tasks, see `measures.ranks`.

    work : a folder that keeps image features
    """
    dataset, features = image_features(dataset, model.image_encoder, work)
    points = model.joint_space.embed_left(features), model.encode_text(dataset.sentences)
    hubness = model.joint_space.hubness
    return task_ranks(*points, dataset.image_of, *(hubness.measure(*points) if hubness else ()))


def evaluate_model(model: ImageTextModel, dataset: Dataset, work: str | os.PathLike | None = None) -> Figures:
    """Recalls, median and mean ranks of the three tasks on all images of a data set.

    Choose a part of it first: `dataset.part("test")`.

    Parameters
    ----------
    model : ImageTextModel
        The model.
    dataset : Dataset
        Photos and their sentences.
    work : path, optional
        A folder that keeps image features.

    Returns
    -------
    figures : dict of str to dict
        For each task `r@1`, `r@5`, `r@10`, `median` and `mean`.

    Examples
    --------
    >>> from fishermix_photos import ImageTextModel
    >>> from fishermix_lab.datasets.readers import open_dataset
    >>> figures = evaluate_model(ImageTextModel.load(), open_dataset("flickr8k:DIR").part("test"), "work")
    >>> sorted(figures)
    ['annotation', 'search', 'similarity']
    """
    return figures(rank_answers(model, dataset, work))


def with_dev(dataset: Dataset, seed: int) -> Dataset:
    """The data set, with a tenth of the training images held out as "dev" if it has none."""
    has_dev = bool((dataset.splits == "dev").any())
    splits = dataset.splits.copy()
    if not (has_dev or (splits == "train").any()):
        splits[splits == ""] = "train"
    rows, fewest = np.flatnonzero(splits == "train"), 2 if has_dev else 10
    if len(rows) < fewest:
        raise FishermixError(
            f"{dataset.name} has {len(rows)} training images. Training needs at least {fewest}.",
            code="too_few",
        )
    if has_dev:
        return dataset
    held_out = np.random.default_rng(seed).permutation(rows)[: int(len(rows) * 0.1)]
    splits[held_out] = "dev"
    return replace(dataset, splits=splits)


def fit_sentence_encoder(vectors: WordVectors, recipe: Recipe, stages: Stages) -> SentenceEncoder:
    """Fit whitening and mixtures to the corpus of word vectors, never to captions."""
    corpus = np.asarray(vectors.vectors[: recipe.corpus_words], np.float32)
    lengths = recipe.l2_before, recipe.l2_after
    key = make_key("whitening", corpus, recipe.whitening, lengths, recipe.seed)
    whitening = stages.load_or_make(
        "whitening",
        key,
        lambda: Whitening(recipe.whitening, *lengths, random_state=recipe.seed).fit(corpus),
        lambda made, folder: save_folder(folder, WHITENING, NoFields(), made._to_tensors()),
        lambda folder: Whitening._from_tensors(load_folder(folder, WHITENING).tensors),
    )
    mixtures = recipe.mixtures
    rows = whitening.transform(corpus).astype(np.float32) if mixtures else corpus
    transformer = None
    if recipe.transformer:
        transformer = CachedTransformer(SentenceTransformer.find(recipe.transformer), stages.folder)
    return SentenceEncoder.from_fitted(
        vectors,
        whitening=whitening,
        mixtures=[_fit_mixture(rows, key, families, recipe, stages) for families in mixtures],
        stop_words=recipe.stop_words,
        transformer=transformer,
        transformer_weight=recipe.transformer_weight,
    )


def _fit_mixture(
    rows: np.ndarray, key: str, families: list[Family], recipe: Recipe, stages: Stages
) -> Mixture:
    """Fit a mixture to the rows that the key of a whitening identifies."""
    n_components = recipe.mixture_components
    for family in families:
        if REGISTERED.get(family.name) is not type(family):
            check_family(family)
            register_family(type(family))  # for the saved stage
    return stages.load_or_make(
        f"mixture {'+'.join(family.name for family in families)}",
        make_key("mixture", key, describe_families(families), n_components, recipe.seed),
        lambda: Mixture(n_components, families=families, random_state=recipe.seed, n_jobs=-1).fit(rows),
        lambda made, folder: made.save(folder),
        Mixture.load,
    )


def describe_families(families: Iterable[Family]) -> list[Any]:
    """What a mixture computes from: the parameters of its families, and what their methods return."""
    z = np.linspace(-8, 8, 97)  # includes 0
    methods = ("log_density", "location_score", "scale_score", "irls_weight")
    described: list[Any] = []
    for family in families:
        values = [getattr(family, method)(z) for method in methods] if is_custom(family) else []
        described.append([family.name, family.parameters(), values])
    return described


def image_features(
    dataset: Dataset, encoder: Any, work: str | os.PathLike | None
) -> tuple[Dataset, np.ndarray]:
    """The data set without unreadable photos, and the networks' vectors (n, p) of the others."""
    with open_stages(work) as stages:
        features, failed, _ = extract(dataset.image_paths, encoder, stages.folder)
    good = np.array([str(path) not in failed for path in dataset.image_paths], bool)
    if not good.any():
        raise FishermixError(f"None of the {len(good)} photos of {dataset.name} can be read.", code="too_few")
    if failed:
        print(f"fishermix: skipped {len(failed)} unreadable photos of {dataset.name}", file=sys.stderr)
        dataset = dataset.select(np.flatnonzero(good))
    return dataset, features[good]


def fit_joint_space(
    dataset: Dataset,
    features: np.ndarray,
    widths: list[int],
    encoder: SentenceEncoder,
    recipe: Recipe,
    stages: Stages,
) -> tuple[RegularizedCCA, JointSpace]:
    """Fit the CCA to the training pairs, with the ridges and the power that are best on the "dev" images.

    features (n, p) : the networks' vectors of the data set's images, `widths` numbers per network
    """
    prepared = prepare_features(features, recipe.image_power, recipe.image_l2, widths)
    is_train = dataset.splits == "train"
    train_part, dev_part = dataset.part("train"), dataset.part("dev")
    _check_words_known(train_part, encoder)
    with stages.clock("covariances"):
        sums = _sum_pairs(prepared[is_train], train_part, encoder, recipe)
    dev = PairVectors(prepared[dataset.splits == "dev"], encoder.transform(dev_part.sentences))
    bank = _draw_bank(prepared, is_train, train_part, encoder, recipe)
    # The images vary in one direction less than there are images, at most.
    n_components = min(recipe.n_components, prepared.shape[1], encoder.n_features, max(is_train.sum() - 1, 1))
    with stages.clock("ridges"):
        path = RegularizedCCA(n_components, correlation_power=0).path(sums, recipe.reg_x, recipe.reg_y)
        candidates = _list_candidates(path, dev, dev_part.image_of, bank, recipe)
        best = max(candidates, key=attrgetter("score"))  # the first of equal ones
    cca = best.cca.set_params(correlation_power=best.power)
    space = JointSpace(
        cca,
        power=best.power,
        hubness=best.hubness,
        left_power=recipe.image_power,
        left_l2=recipe.image_l2,
        left_widths=widths,
        right_optional=encoder.sentence_vectors.n_word_features if encoder.transformer is not None else 0,
    )
    return cca, space


def _sum_pairs(
    images: np.ndarray, part: Dataset, encoder: SentenceEncoder, recipe: Recipe
) -> CovarianceSums | GramSums:
    """The covariances; or, for few sentences, their inner products if these are cheaper.

    Inner products of up to ROWS_IN_DOUBLE sentences are summed in float64, and their vectors fit in memory.
    """
    n, (m, p), q = len(part.sentences), images.shape, encoder.n_features
    n_ridges = len(recipe.reg_y if p <= q else recipe.reg_x)
    if n <= ROWS_IN_DOUBLE and choose_method(m, n, p, q, n_ridges) == "dual":
        return GramSums(images, encoder.transform(part.sentences), part.image_of)
    blocks = encoder.blocks(part.sentences)
    return CovarianceSums.from_blocks(images, blocks, part.image_of, encoder.sentence_vectors.feature_groups)


def _draw_bank(
    prepared: np.ndarray, is_train: np.ndarray, part: Dataset, encoder: SentenceEncoder, recipe: Recipe
) -> PairVectors | None:
    """Random training photos and sentences for the hubness correction, if the recipe has one."""
    if not recipe.csls_neighbors:
        return None
    random = np.random.default_rng(recipe.seed)
    images = random.permutation(np.flatnonzero(is_train))[: recipe.csls_bank_size]
    sentences = random.permutation(len(part.sentences))[: recipe.csls_bank_size]
    return PairVectors(prepared[images], encoder.transform([part.sentences[row] for row in sentences]))


class Candidate(NamedTuple):
    """A CCA with a power of its correlations, and its sum of recalls on the "dev" images."""

    cca: RegularizedCCA
    power: float
    hubness: HubnessCorrection | None
    score: float


def _list_candidates(
    path: Iterable[RegularizedCCA],
    dev: PairVectors,
    image_of: np.ndarray,
    bank: PairVectors | None,
    recipe: Recipe,
) -> Iterator[Candidate]:
    """Every CCA of the path with every power of the recipe; vectors are projected once per CCA."""
    for cca in path:
        projections = cca._projections
        of_dev, of_bank = dev.project(projections), bank.project(projections) if bank else None
        for power in map(float, recipe.correlation_powers):
            hubness = None
            if of_bank:
                points = projections.unit_embeddings(*of_bank, power)
                hubness = HubnessCorrection.from_embeddings(*points, recipe.csls_neighbors)
            points = projections.unit_embeddings(*of_dev, power)
            score = recall_sum(*points, image_of, *(hubness.measure(*points) if hubness else ()))
            yield Candidate(cca, power, hubness, score)


class PairVectors(NamedTuple):
    """Vectors of photos and of sentences, in rows; a zero row is a sentence without a known word."""

    images: np.ndarray
    sentences: np.ndarray

    def project(self, projections: CanonicalProjections) -> PairVectors:
        """The projections with power 0; a zero row stays zero."""
        known = np.any(self.sentences, axis=1, keepdims=True)
        images = projections.project_x(self.images, power=0)
        sentences = projections.project_y(self.sentences, power=0)
        return PairVectors(images, np.where(known, sentences, 0))


def _check_words_known(part: Dataset, encoder: SentenceEncoder) -> None:
    """At least two training sentences must have a known word."""
    known = (sentence for sentence in part.sentences if len(encoder.lookup.find([sentence]).rows))
    if len(list(islice(known, 2))) < 2:
        raise FishermixError(
            f"The word vectors know no word of the {len(part.sentences)} training sentences of {part.name}. "
            "Give sentences in the language of the vectors, or other vectors.",
            code="too_few",
        )
