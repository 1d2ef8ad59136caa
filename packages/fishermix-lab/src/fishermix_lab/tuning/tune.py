"""Tune an image network on captions: photos and their sentences are pulled together in the joint space.

The upper layers of the network, the map of its vectors into the joint space and that of the sentences learn
from a symmetric contrastive loss (InfoNCE): of a batch of photos and many more sentences, each photo has to
find its own, and each sentence its photo. Further terms:

- phrases of the captions ("red jacket") are queries with several right photos, because people type two words;
- two copies of one photo, of different size and compression, have to be close;
- what the network knew before is kept: its logits, and the names of its classes as sentences.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fishermix.progress import progress
from scipy.sparse import csr_array
from torch.nn import functional

from fishermix_lab.tuning.losses import contrast, contrast_many
from fishermix_lab.tuning.upper_layers import UpperLayers


@dataclass(frozen=True)
class TuningOptions:
    """How to tune."""

    steps: int  # batches
    batch: int = 128  # photos
    learning_rate: float = 2.5e-4  # the largest, of AdamW; it falls to 0 along half a cosine
    more_sentences: int = 2048  # that each photo of a batch is compared with
    more_photos: int = 2048  # of earlier batches, that each sentence is compared with
    alike: float = 0.9  # sentences whose transformer vectors have a higher cosine are no wrong answers
    within_sources: bool = False  # answers of other sources do not count, so that the source is of no use
    opposites: float = 0.5  # weight of a caption with a wrong color, number, ... as a wrong answer
    phrases: float = 0.5  # weight of the phrases as queries and as answers
    more_phrases: int = 1024  # that each photo of a batch is compared with
    near: float = 0.5  # a phrase with a higher cosine to the caption of a photo is no wrong answer
    copies: float = 1.0  # weight of the distance between two copies of one photo
    copied: int = 12  # photos of a batch that are met in two copies
    distill: float = 0.1  # weight of the logits of the network as it was
    classes: float = 0.15  # weight of the names of its classes
    distilled: int = 32  # photos of a batch for these two terms
    # A batch sees random squares of one of these sizes of the activations, as shares of their side.
    squares: tuple[float, ...] = (0.75, 0.875, 1.0, 1.0)
    averaging: float = 0.998  # decay of the running mean of the weights, which is the result
    # How far the result is from the weights at the start (0) to the tuned ones (1). A network that was tuned
    # before overfits less that way (Wortsman et al. 2022, Robust fine-tuning of zero-shot models).
    toward: float = 1.0
    # The share in the scores, times `toward`, of a CCA that is solved on the tuned vectors. 0: the tuned maps
    # alone. The maps of a model that was tuned before have such a part already.
    cca: float = 0.4
    seed: int = 0


@dataclass(frozen=True, eq=False)
class TuningData:
    """What a network is tuned on.

    activations : (rows, height, width, channels) float16, usually memory-mapped; a row is a copy of a photo
    rows_of : the rows of each photo, an array per photo
    sentences : (sentences, t) float16, their points in the space to start from and their transformer vectors
    sentences_of : the rows of the sentences of each photo, an array per photo
    sources : training photos, an array per set
    shares : how much of a batch comes from each source
    weight_of : (sentences,) the weight of each sentence in the loss
    opposites, opposite_of : (opposites, t) captions with a wrong word; (sentences,) the row of that of each
        sentence, or -1. None: without
    phrases, has_phrase : (phrases, t) phrases as sentences; which photo has which, bool (photos, phrases).
        None: without
    class_names : (forms, classes, t), the names of the network's classes as sentences of several forms. None:
        without this term
    """

    activations: np.ndarray
    rows_of: list[np.ndarray]
    sentences: np.ndarray
    sentences_of: list[np.ndarray]
    sources: list[np.ndarray]
    shares: list[float]
    weight_of: np.ndarray
    opposites: np.ndarray | None = None
    opposite_of: np.ndarray | None = None
    phrases: np.ndarray | None = None
    has_phrase: csr_array | None = None
    class_names: np.ndarray | None = None

    @cached_property
    def source_of(self) -> np.ndarray:
        """The number of the source of each photo (photos,)."""
        numbers = np.full(len(self.rows_of), -1)
        for number, photos in enumerate(self.sources):
            numbers[photos] = number
        return numbers


@dataclass(frozen=True, eq=False)
class Batch:
    """What one step sees.

    photos : (n,) of the data
    activations : (n + m, size, size, channels); the last m are further copies of the photos `copied`
    copied : (m,) positions in the batch
    chosen : (n,) a sentence of each photo
    more : rows of further sentences, and the photos that they describe
    phrase_of : (n,) a phrase of each photo, or -1
    more_phrases : rows of further phrases
    """

    photos: np.ndarray
    activations: torch.Tensor
    copied: np.ndarray
    chosen: np.ndarray
    more: np.ndarray
    photos_of_more: np.ndarray
    phrase_of: np.ndarray
    more_phrases: np.ndarray


class TunedSpace(torch.nn.Module):
    """Both sides: the upper layers with a map into the joint space, and a map of the sentences."""

    def __init__(
        self, layers: UpperLayers, output: str, image_map: np.ndarray, origin: np.ndarray, n_features: int
    ):
        super().__init__()
        self.layers, self.output = layers, output
        self.image_map = torch.nn.Parameter(torch.from_numpy(image_map.astype(np.float32)))
        self.image_origin = torch.nn.Parameter(torch.from_numpy(origin.astype(np.float32)))
        start = torch.zeros(n_features, image_map.shape[1])
        start.fill_diagonal_(1.0)
        self.sentence_map = torch.nn.Parameter(start)
        self.temperature = torch.nn.Parameter(torch.tensor(math.log(16.0)))

    def image_points(self, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Unit points (n, d) of what the upper layers gave."""
        features = values[self.output]
        smallest = 1e-6  # added before the square root: its slope at 0 is infinite
        prepared = torch.sign(features) * torch.sqrt(features.abs() + smallest)
        return functional.normalize(functional.normalize(prepared) @ self.image_map - self.image_origin)

    def sentence_points(self, sentences: torch.Tensor) -> torch.Tensor:
        """Unit points (n, d) of sentences."""
        return functional.normalize(sentences @ self.sentence_map)


class Tuning:
    """A run of the training; `folder` has its checkpoint, from which the same call continues."""

    def __init__(self, space: TunedSpace, data: TuningData, options: TuningOptions, folder: Path):
        self.space, self.data, self.options = space, data, options
        self.file = folder / "checkpoint.pt"
        self.average = copy.deepcopy(space)
        self.teacher = copy.deepcopy(space.layers).requires_grad_(False)
        self.weights_at_start = [weight.detach().clone() for weight in space.parameters()]
        rate = options.learning_rate
        maps = [space.image_map, space.image_origin, space.sentence_map]
        groups = [
            {"params": list(space.layers.parameters()), "lr": rate},
            {"params": maps, "lr": 2 * rate},
            {"params": [space.temperature], "lr": 1e-3, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._find_rate)
        self.queue = torch.zeros(0, space.image_map.shape[1])
        self.queue_of = np.zeros(0, np.int64)  # the sentences that these photos were paired with
        self.queue_photos = np.zeros(0, np.int64)
        self.step = 0
        self.saved = time.monotonic()
        if data.has_phrase is not None:
            self.phrase_counts = np.asarray(data.has_phrase.sum(axis=0)).ravel().astype(np.float64)
        if self.file.is_file():
            self._load()

    def _find_rate(self, step: int) -> float:
        rise = min(200, max(1, self.options.steps // 10))  # steps
        falling = 0.5 * (1 + math.cos(math.pi * min(1.0, step / self.options.steps)))
        return min((step + 1) / rise, 1.0) * falling

    def run(self, report: Callable[[Tuning, float], None] | None = None) -> TunedSpace:
        """Train to the end; returns the result. `report` gets every step's loss."""
        seconds_between_saves = 120.0
        # The next batch is read while this one is computed.
        with progress("tuning", self.options.steps) as bar, ThreadPoolExecutor(1) as pool:
            bar.advance(self.step)
            following = pool.submit(self._draw, self.step)
            try:
                while self.step < self.options.steps:
                    drawn, following = following.result(), pool.submit(self._draw, self.step + 1)
                    loss = self._take_step(drawn)
                    bar.advance()
                    if report is not None:
                        report(self, loss)
                    if time.monotonic() - self.saved > seconds_between_saves:
                        self.save()
            finally:
                self.save()
        return self._make_result()

    def _make_result(self) -> TunedSpace:
        """The running mean of the weights, drawn back to those at the start as far as `toward` says."""
        result = copy.deepcopy(self.average)
        with torch.no_grad():
            for weight, at_start in zip(result.parameters(), self.weights_at_start, strict=True):
                weight.copy_(at_start.lerp(weight, self.options.toward))
        return result

    def _take_step(self, batch: Batch) -> float:
        loss = self._find_loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.step += 1
        decay = min(self.options.averaging, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for mean, now in zip(self.average.parameters(), self.space.parameters(), strict=True):
                mean.lerp_(now, 1 - decay)
        return float(loss.detach())

    def _draw(self, step: int) -> Batch:
        """The batch of a step; a continued run draws the same."""
        data, options = self.data, self.options
        random = np.random.default_rng([options.seed, step])
        photos = _draw_photos(random, data, options.batch)
        chosen = np.array([random.choice(data.sentences_of[photo]) for photo in photos])
        others = _draw_photos(random, data, options.more_sentences)
        more = np.array([random.choice(data.sentences_of[photo]) for photo in others])
        rows = [random.permutation(data.rows_of[photo])[:2] for photo in photos]
        copied = np.flatnonzero([len(found) > 1 for found in rows])[: options.copied if options.copies else 0]
        met = [found[0] for found in rows] + [rows[position][1] for position in copied]
        full = data.activations.shape[1]
        size = round(full * random.choice(options.squares))
        tops, lefts = random.integers(0, full - size + 1, (2, len(met)))
        activations = np.empty((len(met), size, size, data.activations.shape[3]), np.float16)
        for position, (row, top, left) in enumerate(zip(met, tops, lefts)):
            square = data.activations[row, top : top + size, left : left + size]
            activations[position] = square[:, ::-1] if random.random() < 0.5 else square
        phrase_of, more_phrases = self._draw_phrases(random, photos)
        return Batch(
            photos=photos,
            activations=torch.from_numpy(activations).bfloat16(),
            copied=copied,
            chosen=chosen,
            more=more,
            photos_of_more=others,
            phrase_of=phrase_of,
            more_phrases=more_phrases,
        )

    def _draw_phrases(self, random: np.random.Generator, photos: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A phrase of each photo, often a rare one, or -1; and further phrases, often common ones."""
        has = self.data.has_phrase
        if has is None or not has.nnz or not self.options.phrases:
            return np.full(len(photos), -1), np.zeros(0, np.int64)
        chosen = np.full(len(photos), -1)
        for position, photo in enumerate(photos):
            found = has.indices[has.indptr[photo] : has.indptr[photo + 1]]
            if len(found):
                rarity = self.phrase_counts[found] ** -0.5
                chosen[position] = random.choice(found, p=rarity / rarity.sum())
        commonness = self.phrase_counts**0.5
        n = min(self.options.more_phrases, len(commonness))
        return chosen, random.choice(len(commonness), n, p=commonness / commonness.sum())

    def _find_loss(self, batch: Batch) -> torch.Tensor:
        space = self.space
        options = self.options
        data = self.data
        n = len(batch.photos)
        values = space.layers(batch.activations)
        embeddings = space.image_points(values)
        images, copies = embeddings[:n], embeddings[n:]
        scale = space.temperature.exp().clamp(max=100.0)
        texts = torch.from_numpy(data.sentences[np.concatenate([batch.chosen, batch.more])]).float()
        loss = self._compare_sentences(batch, images, texts, scale)
        if options.phrases and data.phrases is not None:
            loss = loss + options.phrases * self._compare_phrases(batch, images, texts[:n], scale)
        if len(copies):
            distances = 1 - (images[torch.from_numpy(batch.copied)] * copies).sum(1)
            loss = loss + options.copies * distances.mean()
        loss = loss + self._remember(batch.activations, values, images, scale)
        self.queue = torch.cat([images.detach(), self.queue])[: options.more_photos]
        self.queue_of = np.concatenate([batch.chosen, self.queue_of])[: options.more_photos]
        self.queue_photos = np.concatenate([batch.photos, self.queue_photos])[: options.more_photos]
        return loss

    def _compare_sentences(
        self, batch: Batch, images: torch.Tensor, texts: torch.Tensor, scale: torch.Tensor
    ) -> torch.Tensor:
        """Each photo has to find its sentence, and each sentence its photo."""
        space = self.space
        options = self.options
        data = self.data
        n = len(images)
        weights = torch.from_numpy(data.weight_of[batch.chosen])
        sentences = space.sentence_points(texts)
        meanings = self._find_meanings(texts)
        queued = self._find_meanings(torch.from_numpy(data.sentences[self.queue_of]).float())
        right = torch.arange(n)
        by_photo = scale * images @ sentences.T
        possible = meanings[:n] @ meanings.T <= options.alike
        possible &= self._are_comparable(batch.photos, np.concatenate([batch.photos, batch.photos_of_more]))
        if options.opposites and data.opposites is not None and data.opposite_of is not None:
            rows = torch.from_numpy(data.opposite_of[batch.chosen])
            opposites = space.sentence_points(torch.from_numpy(data.opposites[rows.clamp(min=0)]).float())
            own = scale * (images * opposites).sum(1, keepdim=True) + math.log(options.opposites)
            by_photo = torch.cat([by_photo, own], 1)
            possible = torch.cat([possible, rows[:, None] >= 0], 1)
        loss = contrast(by_photo, right, possible, weights)
        by_sentence = scale * sentences[:n] @ torch.cat([images, self.queue]).T
        possible = meanings[:n] @ torch.cat([meanings[:n], queued]).T <= options.alike
        possible &= self._are_comparable(batch.photos, np.concatenate([batch.photos, self.queue_photos]))
        return loss + contrast(by_sentence, right, possible, weights)

    def _compare_phrases(
        self, batch: Batch, images: torch.Tensor, texts: torch.Tensor, scale: torch.Tensor
    ) -> torch.Tensor:
        """Each phrase has to find all photos that have it, and each photo all its phrases."""
        space, options, data = self.space, self.options, self.data
        assert data.phrases is not None
        assert data.has_phrase is not None
        with_phrase = np.flatnonzero(batch.phrase_of >= 0)
        if not len(with_phrase):
            return images.sum() * 0.0
        asked, first = np.unique(batch.phrase_of[with_phrase], return_index=True)
        askers = batch.photos[with_phrase[first]]
        phrases = np.concatenate([asked, batch.more_phrases])
        photos = np.concatenate([batch.photos, self.queue_photos])
        given = torch.from_numpy(data.phrases[phrases]).float()
        points = space.sentence_points(given)
        meanings = self._find_meanings(given)
        captions = torch.from_numpy(data.sentences[self.queue_of]).float()
        of_photos = torch.cat([self._find_meanings(texts), self._find_meanings(captions)])
        right = torch.from_numpy(data.has_phrase[photos][:, phrases].toarray()).T  # (phrases, photos)
        wrong = ~right & (meanings @ of_photos.T <= options.near)
        n, m = len(batch.photos), len(asked)
        by_phrase = scale * points[:m] @ torch.cat([images, self.queue]).T
        found = contrast_many(by_phrase, right[:m], wrong[:m] & self._are_comparable(askers, photos))
        by_photo = scale * images @ points.T
        return found + contrast_many(by_photo, right[:, :n].T, wrong[:, :n].T)

    def _find_meanings(self, texts: torch.Tensor) -> torch.Tensor:
        """The unit vectors that the sentence transformer gave."""
        return functional.normalize(texts[:, self.space.image_map.shape[1] :])

    def _are_comparable(self, photos: np.ndarray, others: np.ndarray) -> torch.Tensor:
        """Whether photos (n, m) are of one source, if that matters."""
        if not self.options.within_sources:
            return torch.ones(len(photos), len(others), dtype=torch.bool)
        sources = self.data.source_of
        return torch.from_numpy(sources[photos][:, None] == sources[others])

    def _remember(
        self,
        activations: torch.Tensor,
        values: dict[str, torch.Tensor],
        images: torch.Tensor,
        scale: torch.Tensor,
    ) -> torch.Tensor:
        """What the network knew: its logits, and the names of its classes in the joint space."""
        options, m = self.options, self.options.distilled
        if "logits" not in values or not m:
            return torch.zeros(())
        with torch.no_grad():
            known = self.teacher(activations[:m])["logits"].softmax(1)
        loss = options.distill * functional.cross_entropy(values["logits"][:m], known)
        if self.data.class_names is not None:
            form = self.data.class_names[self.step % len(self.data.class_names)]
            names = self.space.sentence_points(torch.from_numpy(form).float())
            loss = loss + options.classes * functional.cross_entropy(scale * images[:m] @ names.T, known)
        return loss

    def save(self) -> None:
        """Write the checkpoint, in place of the last."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        state: dict[str, Any] = {
            "space": self.space.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "queue": self.queue,
            "queue_of": torch.from_numpy(self.queue_of),
            "queue_photos": torch.from_numpy(self.queue_photos),
            "step": self.step,
        }
        new = self.file.with_suffix(".new")
        torch.save(state, new)
        new.replace(self.file)
        self.saved = time.monotonic()

    def _load(self) -> None:
        state = torch.load(self.file, weights_only=True)
        for name in ("space", "average", "optimizer", "schedule"):
            getattr(self, name).load_state_dict(state[name])
        self.queue, self.step = state["queue"], state["step"]
        self.queue_of = state["queue_of"].numpy()
        self.queue_photos = state["queue_photos"].numpy()


def _draw_photos(random: np.random.Generator, data: TuningData, n: int) -> np.ndarray:
    """Photos of all sources, by their shares, in random order."""
    counts = random.multinomial(n, data.shares)
    drawn = [random.choice(photos, count) for photos, count in zip(data.sources, counts, strict=True)]
    return random.permutation(np.concatenate(drawn))
