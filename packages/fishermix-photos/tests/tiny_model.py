"""A model small enough to be understood: it knows seven colours, in photos by their pixels and in text by
name. Its joint space is a real one, whose maps change nothing.
"""

import io
from collections import Counter
from pathlib import Path

import numpy as np
from fishermix.errors import FishermixError
from fishermix.joint.hubness import HubnessCorrection
from fishermix.joint.projections import CanonicalProjections
from fishermix.joint.space import JointSpace
from fishermix.text.vocabulary import Vocabulary
from fishermix_photos.model.captioner.consensus import Description
from PIL import Image

COLOURS = {
    "red": (220, 20, 20),
    "green": (20, 160, 20),
    "blue": (20, 20, 220),
    "yellow": (240, 230, 20),
    "white": (250, 250, 250),
    "black": (5, 5, 5),
    "grey": (128, 128, 128),
}
NAMES = list(COLOURS)
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


class TinyImageEncoder:
    n_features = len(COLOURS)
    key = "tiny-pixels"

    def stream(self, images, on_open=None):
        for position, image in enumerate(images):
            try:
                yield position, self._shares(image, on_open)
            except FishermixError as error:
                yield position, error

    def transform(self, images):
        return np.stack([self._shares(image) for image in images])

    def _shares(self, source, on_open=None):
        """Share of pixels nearest to each colour (7,)."""
        try:
            image = source
            if not isinstance(source, Image.Image):
                image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)
            if on_open is not None:
                on_open(source, image)
            pixels = np.asarray(image.convert("RGB").resize((16, 16)), np.float32).reshape(-1, 1, 3)
        except (OSError, ValueError, SyntaxError) as error:
            raise FishermixError(f"cannot be read as a photo ({type(error).__name__})") from error
        nearest = ((pixels - np.array(list(COLOURS.values()), np.float32)) ** 2).sum(axis=2).argmin(axis=1)
        return np.bincount(nearest, minlength=len(COLOURS)).astype(np.float32)


class TinyCaptioner:
    def caption(self, points, beam=1):
        return [f"a {NAMES[point.argmax()]} picture" for point in points]


def project_to_colours(n=7):
    """Maps that keep the shares of the first n colours as they are."""
    first = np.eye(len(COLOURS))[:, :n]
    origin = np.zeros(len(COLOURS))
    return CanonicalProjections(
        correlations=np.ones(n), x_weights=first, y_weights=first, x_mean=origin, y_mean=origin
    )


class TinyModel:
    key = space_key = "tiny"
    dimension = csls_dimension = len(COLOURS)
    sentence_encoder = None
    reads_unknown_words = False
    calibration = pool = hubness = None
    vocabulary = Vocabulary.from_words(NAMES)

    def __init__(self):
        self.word_counts = Counter(dict.fromkeys(NAMES, 100))  # all of them are everyday words
        self.image_encoder = TinyImageEncoder()
        self.captioner = TinyCaptioner()

    @classmethod
    def load(cls, folder=None):
        return cls()

    def encode_text(self, sentences):
        counts = np.array([[_words(s).count(name) for name in NAMES] for s in sentences], np.float32)
        return _unit(counts.reshape(-1, len(NAMES)))

    encode_queries = encode_text

    def encode_query(self, sentence):
        return self.encode_text([sentence])[0], [word for word in _words(sentence) if word not in NAMES]

    def is_whole_word(self, word):
        return True

    def knows_word(self, word):
        return word in NAMES

    def compare_words(self, word, others):
        return [1.0] * len(others)

    @property
    def joint_space(self):
        return JointSpace(project_to_colours(), power=0, hubness=self.hubness)

    def encode_images(self, images):
        return self.joint_space.embed_left(self.image_encoder.transform(images))

    def caption(self, images, beam=1):
        return self.captioner.caption(self.encode_images(images), beam)

    def describe_points(self, points, beam=1, in_color=None):
        """Black is a picture of nothing: its caption is unsure."""
        written = self.captioner.caption(points, beam)
        black = points[:, NAMES.index("black")] > 0.5
        return [
            Description(text, confidence=0.1 if dark else 0.8 + 1e-9, unsure=bool(dark))
            for text, dark in zip(written, black)
        ]


class TrainingScores:
    """Stands for a hubness correction: the scores of training photos, the same for every query."""

    def __init__(self, *scores):
        self.scores = np.linspace(*scores)

    def score_bank(self, query):
        return self.scores

    def find_nearness(self, point):
        return 1.0

    def csls_left(self, points):
        return points

    def csls_right(self, points):
        return points


class CrowdedModel(TinyModel):
    """Matches by cosine less hubness: in its bank of sentences nearly all speak of red."""

    key = "crowded"
    csls_dimension = len(COLOURS) + 2

    def __init__(self):
        super().__init__()
        images = np.eye(len(COLOURS), dtype=np.float32)
        self.hubness = HubnessCorrection.from_embeddings(images, self.encode_text(["red"] * 10 + NAMES), 5)


def _words(sentence):
    return sentence.lower().split() if isinstance(sentence, str) else list(sentence)


def _unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def paint(path, *colours, size=(48, 32)):
    """Save a picture with a vertical stripe of each colour."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", size)
    for i, colour in enumerate(colours):
        image.paste(
            COLOURS[colour], (i * size[0] // len(colours), 0, (i + 1) * size[0] // len(colours), size[1])
        )
    image.save(path)
    return path
