"""Tune an image network on captions: photos and their sentences are pulled together in the joint space.

The upper layers of the network, the map of its vectors into the joint space and that of the sentences learn
from a symmetric contrastive loss (InfoNCE): of a batch of photos and many more sentences, each photo has to
find its own, and each sentence its photo. Two further terms keep what the network knew before: the logits of
the network as it was, and the names of its classes as sentences.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fishermix.progress import progress
from torch.nn import functional

from fishermix_photos.lab.upper_layers import UpperLayers

SECONDS_BETWEEN_SAVES = 120.0
WARM_UP = 200  # steps, at most; fewer in a short tuning
SMALLEST = 1e-6  # added before the square root: its slope at 0 is infinite


@dataclass(frozen=True)
class TuningOptions:
    """How to tune."""

    steps: int  # batches
    batch: int = 128  # photos
    learning_rate: float = 2.5e-4  # the largest, of AdamW; it falls to 0 along half a cosine
    more_sentences: int = 2048  # that each photo of a batch is compared with
    more_photos: int = 2048  # of earlier batches, that each sentence is compared with
    alike: float = 0.9  # sentences whose transformer vectors have a higher cosine are no wrong answers
    distill: float = 0.1  # weight of the logits of the network as it was
    classes: float = 0.15  # weight of the names of its classes
    distilled: int = 32  # photos of a batch for these two terms
    # A batch sees random squares of one of these sizes of the activations, as shares of their side.
    squares: tuple[float, ...] = (0.75, 0.875, 1.0, 1.0)
    averaging: float = 0.998  # decay of the running mean of the weights, which is the result
    seed: int = 0


@dataclass(frozen=True, eq=False)
class TuningData:
    """What a network is tuned on.

    activations : (photos, height, width, channels) float16, usually memory-mapped
    sentences : (sentences, t) float16, their points in the space to start from and their transformer vectors
    sentences_of : the rows of the sentences of each photo, an array per photo
    sources : rows of training photos, an array per set
    shares : how much of a batch comes from each source
    weight_of : (sentences,) the weight of each sentence in the loss
    class_names : (classes, t), the names of the network's classes as sentences; None: without this term
    """

    activations: np.ndarray
    sentences: np.ndarray
    sentences_of: list[np.ndarray]
    sources: list[np.ndarray]
    shares: list[float]
    weight_of: np.ndarray
    class_names: np.ndarray | None = None


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
        prepared = torch.sign(features) * torch.sqrt(features.abs() + SMALLEST)
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
        self.step, self.saved = 0, time.monotonic()
        if self.file.is_file():
            self._load()

    def _find_rate(self, step: int) -> float:
        rise = min(WARM_UP, max(1, self.options.steps // 10))
        falling = 0.5 * (1 + math.cos(math.pi * min(1.0, step / self.options.steps)))
        return min((step + 1) / rise, 1.0) * falling

    def run(self, report: Callable[[Tuning, float], None] | None = None) -> TunedSpace:
        """Train to the end; returns the running mean of the weights. `report` gets every step's loss."""
        # The next batch is read while this one is computed.
        with progress("tuning", self.options.steps) as bar, ThreadPoolExecutor(1) as pool:
            bar.advance(self.step)
            following = pool.submit(self._draw, self.step)
            try:
                while self.step < self.options.steps:
                    drawn, following = following.result(), pool.submit(self._draw, self.step + 1)
                    loss = self._take_step(*drawn)
                    bar.advance()
                    if report is not None:
                        report(self, loss)
                    if time.monotonic() - self.saved > SECONDS_BETWEEN_SAVES:
                        self.save()
            finally:
                self.save()
        return self.average

    def _take_step(self, batch: torch.Tensor, chosen: np.ndarray, more: np.ndarray) -> float:
        loss = self._find_loss(batch, chosen, more)
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

    def _draw(self, step: int) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
        """Activations of a batch, the rows of a sentence of each photo, and those of further sentences."""
        data, options = self.data, self.options
        random = np.random.default_rng([options.seed, step])  # a continued run draws the same
        photos = _draw_photos(random, data, options.batch)
        chosen = np.array([random.choice(data.sentences_of[photo]) for photo in photos])
        others = _draw_photos(random, data, options.more_sentences)
        more = np.array([random.choice(data.sentences_of[photo]) for photo in others])
        full = data.activations.shape[1]
        size = round(full * random.choice(options.squares))
        tops, lefts = random.integers(0, full - size + 1, (2, len(photos)))
        batch = np.empty((len(photos), size, size, data.activations.shape[3]), np.float16)
        for row, (photo, top, left) in enumerate(zip(photos, tops, lefts)):
            square = data.activations[photo, top : top + size, left : left + size]
            batch[row] = square[:, ::-1] if random.random() < 0.5 else square
        return torch.from_numpy(batch).bfloat16(), chosen, more

    def _find_loss(self, batch: torch.Tensor, chosen: np.ndarray, more: np.ndarray) -> torch.Tensor:
        space, options, n = self.space, self.options, len(batch)
        rows = np.concatenate([chosen, more])
        texts = torch.from_numpy(self.data.sentences[rows]).float()
        weights = torch.from_numpy(self.data.weight_of[chosen])
        values = space.layers(batch)
        images, sentences = space.image_points(values), space.sentence_points(texts)
        scale = space.temperature.exp().clamp(max=100.0)
        meanings = functional.normalize(texts[:, space.image_map.shape[1] :])
        of_queue = torch.from_numpy(self.data.sentences[self.queue_of]).float()
        queued = functional.normalize(of_queue[:, space.image_map.shape[1] :])
        by_photo = scale * images @ sentences.T
        by_sentence = scale * sentences[:n] @ torch.cat([images, self.queue]).T
        right = torch.arange(n)
        loss = torch.zeros(())
        for scores, others in ((by_photo, meanings), (by_sentence, torch.cat([meanings[:n], queued]))):
            alike = meanings[:n] @ others.T > options.alike
            alike[right, right] = False
            found = functional.cross_entropy(scores.masked_fill(alike, -1e4), right, reduction="none")
            loss = loss + (weights * found).sum() / weights.sum()
        self.queue = torch.cat([images.detach(), self.queue])[: options.more_photos]
        self.queue_of = np.concatenate([chosen, self.queue_of])[: options.more_photos]
        return loss + self._remember(batch, values, images, scale)

    def _remember(
        self, batch: torch.Tensor, values: dict[str, torch.Tensor], images: torch.Tensor, scale: torch.Tensor
    ) -> torch.Tensor:
        """What the network knew: its logits, and the names of its classes in the joint space."""
        options, m = self.options, self.options.distilled
        if "logits" not in values or not m:
            return torch.zeros(())
        with torch.no_grad():
            known = self.teacher(batch[:m])["logits"].softmax(1)
        loss = options.distill * functional.cross_entropy(values["logits"][:m], known)
        if self.data.class_names is not None:
            names = self.space.sentence_points(torch.from_numpy(self.data.class_names).float())
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
        self.queue, self.queue_of, self.step = state["queue"], state["queue_of"].numpy(), state["step"]


def _draw_photos(random: np.random.Generator, data: TuningData, n: int) -> np.ndarray:
    """Photos of all sources, by their shares."""
    counts = random.multinomial(n, data.shares)
    return np.concatenate(
        [random.choice(rows, count) for rows, count in zip(data.sources, counts, strict=True)]
    )


def encode(space: TunedSpace, activations: np.ndarray, rows: np.ndarray, batch: int = 64) -> np.ndarray:
    """The network's vectors (n, p) of these photos."""
    found = []
    with torch.inference_mode(), progress("encoding photos", len(rows)) as bar:
        for start in range(0, len(rows), batch):
            values = torch.from_numpy(activations[rows[start : start + batch]]).bfloat16()
            found.append(space.layers(values)[space.output].numpy())
            bar.advance(len(values))
    return np.concatenate(found)
