"""Every kind of file that fishermix reads: how to make valid seeds, and how to read a damaged one.

Seeds are written by the code that saves such files, with the schema that reads them.
"""

import gzip
import json
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fishermix.cca.estimator import RegularizedCCA
from fishermix.joint.hubness import HUBNESS_KIND, HubnessCorrection
from fishermix.mixture import HybridMixture, Mixture
from fishermix.mixture.checkpoint import CHECKPOINT_KIND as MIXTURE_CHECKPOINT
from fishermix.mixture.saved import unpack_state
from fishermix.rows import open_table
from fishermix.saved import dump, load_folder, save_folder
from fishermix.text.whitening import Whitening
from fishermix.text.word_vectors import WordVectors
from fishermix_lab.datasets.readers import Dataset
from fishermix_lab.features import FEATURES_FILE, fill_cache, open_cache
from fishermix_lab.recipe import find_recipe
from fishermix_lab.reproduce import Result, _load_result
from fishermix_lab.training import WHITENING, NoFields, train_model
from fishermix_photos.index.filters import Filter
from fishermix_photos.index.values import Entry
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.model.calibration import Calibration
from fishermix_photos.model.captioner.captioner import Captioner
from fishermix_photos.model.captioner.decoding import Weights
from fishermix_photos.model.captioner.vocabulary import CaptionVocabulary
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.network import EXAMPLE, Network
from fishermix_photos.model.sentences import PooledSentences
from fishermix_photos.photos.details import Details
from PIL import Image

from tests.fuzz.datasets import DATASETS
from tests.fuzz.kind import Kind
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.networks import NETWORKS
from tests.fuzz.pictures import PICTURES
from tests.fuzz.rows import Rows

RNG = np.random.default_rng(0)


# Folders


def make_model(folder):
    """A model of twelve photos, with the mixture and the mean of its word vectors."""
    words = ["red", "green", "blue", "yellow", "a", "photo", *(f"word{number}" for number in range(60))]
    vectors = WordVectors(words, RNG.laplace(size=(len(words), 4)).astype(np.float32))
    sentences = [f"a {words[number % 4]} photo word{number}" for number in range(24)]
    splits = np.array(["train"] * 10 + ["dev"] * 2)
    recipe = find_recipe("paper").with_(mixture_components=2, n_components=3, reg_x=(0.01,), reg_y=(0.01,))
    with tempfile.TemporaryDirectory() as work:
        names = [f"{number}.png" for number in range(12)]
        paths = [Path(work, name) for name in names]
        for path in paths:
            Image.fromarray(RNG.integers(0, 255, (32, 32, 3), np.uint8)).save(path)
        dataset = Dataset("tiny", names, paths, sentences, np.repeat(np.arange(12), 2), splits)
        train_model(dataset, vectors, recipe, Path(work, "work")).save(folder)


def make_mixture(folder):
    mixture = HybridMixture(2, max_iter=3, tol=0, random_state=0)
    mixture.fit(RNG.laplace(size=(60, 3))).save(folder)


def make_checkpoint(folder):
    rows = RNG.laplace(size=(60, 3))
    HybridMixture(2, max_iter=3, tol=0, random_state=0, checkpoint=folder).fit(rows)


def read_checkpoint(folder):
    saved = load_folder(folder, MIXTURE_CHECKPOINT)
    config, tensors = saved.config, saved.tensors
    for name, state in (("state", config.state), ("best", config.best)):
        if state is not None:
            part = {k.split(".", 1)[1]: v for k, v in tensors.items() if k.startswith(f"{name}.")}
            unpack_state(state, part, folder)


def make_calibration(folder):
    numbers = {"intercept": -3, "score": 8, "deviations": 0.4, "log_photos": -0.6, "log_words": -0.5}
    Calibration(model_key="tiny", **numbers).save(folder)


def make_pool(folder):
    PooledSentences(["a dog", "a cat"], np.eye(2, 3, dtype=np.float32), "a test").save(folder, "tiny")


def make_cca(folder):
    x = RNG.normal(size=(40, 4))
    RegularizedCCA(2).fit(x, x @ RNG.normal(size=(4, 3))).save(folder)


def make_vectors(folder):
    words = ["red", "green", "blue", "photo"]
    WordVectors(words, RNG.normal(size=(4, 3)).astype(np.float32)).save(folder)


def read_vectors(folder):
    vectors = WordVectors.load(folder)
    vectors.rows(["red", "zorblax"])
    vectors.most_similar(RNG.normal(size=vectors.dimension), 2)
    list(vectors.words[:3])


def make_hubness(folder):
    HubnessCorrection.from_embeddings(RNG.normal(size=(5, 3)), RNG.normal(size=(6, 3)), 2).save(folder)


def read_hubness(folder):
    HubnessCorrection.from_saved(load_folder(folder, HUBNESS_KIND), 3)


def make_captioner(folder):
    units, dimension, words = 4, 3, ["ENDSENT", "red", "photo"]
    shapes = (4 * units, dimension), (4 * units, units), (4 * units,), (len(words), units), (len(words),)
    weights = Weights(*(RNG.normal(size=shape).astype(np.float32) for shape in shapes))
    points = RNG.normal(size=(len(words), dimension)).astype(np.float32)
    Captioner(CaptionVocabulary(words), points, weights, "key").save(folder)


def read_captioner(folder):
    captioner = Captioner.load(folder)
    if captioner.dimension <= 64:
        captioner.caption(np.ones((1, captioner.dimension)), beam=2)


def make_whitening(folder):
    whitening = Whitening("pca").fit(RNG.normal(size=(30, 3)))
    save_folder(folder, WHITENING, NoFields(), whitening._to_tensors())


def read_model(folder):
    model = ImageTextModel.load(folder)
    model.encode_text(["red green", "a blue photo"])
    model.joint_space.embed_left(np.ones((1, len(model.joint_space.projections.x_weights)), np.float32))
    for name in model._saved.config.encoders:
        Network.find(name)
    assert model.key


def make_training(folder):
    from tests.fuzz.training import make_training as make

    make(folder)


def read_training(folder):
    from tests.fuzz.training import read_training as read

    read(folder)


# Single files


def make_sidecar(folder):
    (folder / "net.json").write_text(EXAMPLE)
    (folder / "net.onnx").write_bytes(b"graph")


def make_result(folder):
    figures = {task: {"r@1": 10.0, "median": 3.0} for task in ("search", "annotation")}
    result = Result("hglmm", "vgg19", figures, [{"reg_x": 0.1}], {"test": 1.0})
    (folder / "result.json").write_text(json.dumps(dump(result)))


def read_result(folder):
    from fishermix_lab import tables

    results = [_load_result(folder / "result.json")]
    tables.as_text("flickr8k", results)


def make_npy(folder):
    np.save(folder / "rows.npy", RNG.normal(size=(20, 3)).astype(np.float32))


def read_npy(folder):
    table = open_table(folder / "rows.npy")
    table.read(0, min(table.shape[0], 50) if table.shape[1] < 1000 else 0)


def make_library(folder):
    from fishermix_photos.index.scan import Stamp

    with closing(LocalIndex(folder)) as store:
        store.adopt("key", 3)
        store.add_folder("/photos")
        known = Details("2014-05-06T07:08:09", "exif", "camera", 1.5, 2.5, 40, 30)
        for number in range(6):
            vector, digest = RNG.normal(size=3).astype(np.float32), bytes([number]) * 32
            details = known if number < 4 else None
            entry = Entry(f"/photos/{number}.jpg", Stamp(9, 9), digest, vector, details=details)
            store.write("/photos", [entry])
        unreadable = Entry("/photos/bad.jpg", Stamp(1, 1), reason="damaged")
        store.write("/photos", [unreadable], ["/photos/5.jpg"])
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def read_library(folder):
    for name in ("library.sqlite-wal", "library.sqlite-shm"):
        (folder / name).unlink(missing_ok=True)
    with closing(LocalIndex(folder)) as store:
        state = store.state()
        store.files()
        store.stamps("/photos/")
        store.unreadable()
        store.count(["/photos/"])
        every = Filter("2001", "2030", "photos", "camera", "1,1,100000km", "JPEG", names=("1",))
        if 0 < state.dimension < 100:
            query = np.ones(state.dimension, np.float32)
            store.nearest(query, 3)
            store.nearest(query, 3, ["/photos/"])
            store.nearest(query, 3, filter=every)
            store.sample_scores(query, 10)
        store.photos(["/photos/"], every)
        for photo in store.photos():
            photo.details.as_json()
            store.find([photo.id])
            store.pictures([photo.id])
        store.verify()


class TinyEncoder:
    key, max_pixels_, n_features = "tiny", 100, 3

    def stream(self, images):
        return iter(images)


def make_features(folder):
    with open_cache(Path(folder) / FEATURES_FILE, "tiny", 3) as cache:
        cache.add({bytes([n]) * 32: np.ones(3, np.float32) for n in range(4)})


def read_features(folder):
    with open_cache(Path(folder) / FEATURES_FILE, "tiny", 3) as cache:
        fill_cache(cache, [], TinyEncoder())
        cache.find(bytes([n]) * 32 for n in range(10))


def make_word2vec(folder):
    words = [b"red", "größe".encode(), b"blue"]
    body = b"".join(word + b" " + RNG.normal(size=3).astype("<f4").tobytes() + b"\n" for word in words)
    (folder / "vectors.bin").write_bytes(b"3 3\n" + body)
    (folder / "vectors.txt").write_text("red 1 2 3\nblue 4 5 6\ngreen 0.5 1e-3 7\n")


def read_word2vec(folder):
    WordVectors.load(folder / "vectors.bin")


@dataclass(frozen=True)
class Compressed(Kind):
    """Damages the content and compresses it again, or the compressed file itself."""

    def mutate(self, seed, rng):
        [(name, data)] = [(name, data) for name, data in seed.items() if name in self.files]
        if rng.random() < 0.3:
            return name, mutate_bytes(data, rng)
        return name, gzip.compress(mutate_bytes(gzip.decompress(data), rng))


def make_compressed(folder):
    make_word2vec(folder)
    data = (folder / "vectors.bin").read_bytes()
    (folder / "vectors.packed").write_bytes(gzip.compress(data))


def read_compressed(folder):
    WordVectors.load(folder / "vectors.packed")


FOLDER = ("config.json", "config.json", "tensors-*")
KINDS = {
    "model": Kind(make_model, read_model, FOLDER),
    "hubness": Kind(make_hubness, read_hubness, FOLDER),
    "mixture": Kind(make_mixture, Mixture.load, FOLDER),
    "mixture checkpoint": Kind(make_checkpoint, read_checkpoint, FOLDER),
    "calibration": Kind(
        make_calibration, lambda folder: Calibration.load(folder, "tiny"), ("calibration.json",)
    ),
    "sentence pool": Kind(make_pool, lambda folder: PooledSentences.load(folder, "tiny", 3), FOLDER),
    "cca": Kind(make_cca, RegularizedCCA.load, FOLDER),
    "word vectors": Kind(make_vectors, read_vectors, FOLDER),
    "captioner": Kind(make_captioner, read_captioner, FOLDER),
    "captioner checkpoint": Kind(make_training, read_training, FOLDER),
    "whitening": Kind(
        make_whitening, lambda folder: Whitening._from_tensors(load_folder(folder, WHITENING).tensors), FOLDER
    ),
    "network sidecar": Kind(
        make_sidecar, lambda folder: Network.find(folder / "net.onnx").features_key("squeeze"), ("net.json",)
    ),
    "result": Kind(make_result, read_result, ("result.json",)),
    "npy table": Kind(make_npy, read_npy, ("rows.npy",)),
    "photo library": Kind(
        make_library,
        read_library,
        ("library.sqlite", "library.sqlite", "embeddings-*.f32"),
        restores_all=True,
    ),
    "rows of a library": Rows(make_library, read_library, ("library.sqlite",), restores_all=True),
    "feature cache": Kind(make_features, read_features, ("features.sqlite",), True),
    "word2vec file": Kind(make_word2vec, read_word2vec, ("vectors.bin",)),
    "GloVe file": Kind(
        make_word2vec, lambda folder: WordVectors.load(folder / "vectors.txt"), ("vectors.txt",)
    ),
    "gzip word vectors": Compressed(make_compressed, read_compressed, ("vectors.packed",)),
    **DATASETS,
    **PICTURES,
    **NETWORKS,
}
