"""Every kind of file that fishermix reads: how to make valid seeds, and how to read a damaged one.

Seeds are written by the code that saves such files, with the schema that reads them.
"""

import hashlib
import io
import json
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fishermix.caption.captioner import Captioner
from fishermix.caption.decoding import Weights
from fishermix.caption.vocabulary import CaptionVocabulary
from fishermix.cca import RegularizedCCA
from fishermix.databases import ERRORS
from fishermix.datasets import open_dataset
from fishermix.experiments.reproduce import Result, _load_result
from fishermix.mixture import HybridMixture, Mixture
from fishermix.mixture.checkpoint import KIND as MIXTURE_CHECKPOINT
from fishermix.mixture.checkpoint import unpack_state
from fishermix.model.hubness import HubnessCorrection
from fishermix.model.model import ImageTextModel
from fishermix.model.training import WHITENING, NoFields
from fishermix.retrieval.sqlite_store import LocalStore
from fishermix.rows.files import open_table
from fishermix.schemas import dump
from fishermix.storage import load_folder, save_folder
from fishermix.text.vectors import WordVectors
from fishermix.text.whitening import Whitening
from fishermix.vision.feature_cache import _FeatureCache
from fishermix.vision.images import open_photo
from fishermix.vision.network_file import EXAMPLE, Network
from tests.fuzz.mutate import mutate_bytes, mutate_json

OLD = Path(__file__).parent.parent / "folders_of_0_1"
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Kind:
    """make(folder) writes a seed; read(folder) reads and uses it; `files` are the names to damage.

    A damaged tensor file gets its right hash in config.json: a hostile folder has one too.
    """

    make: object
    read: object
    files: tuple[str, ...]

    def mutate(self, folder, rng):
        """Damage one file of a fresh copy of the seed; returns its name, and what it contains now."""
        name = rng.choice(self.files)
        path = next(folder.glob(name))
        data = path.read_bytes()
        changed = (mutate_json if path.suffix == ".json" else mutate_bytes)(data, rng)
        if path.name.startswith("tensors-") and rng.random() < 0.5 and len(data) > 8:
            changed = _mutate_header(data, rng)
        return path.name, changed

    @staticmethod
    def place(folder, name, data):
        (folder / name).write_bytes(data)
        if name.startswith("tensors-"):
            config = json.loads((folder / "config.json").read_text())
            config["sha256"] = hashlib.sha256(data).hexdigest()
            (folder / "config.json").write_text(json.dumps(config))


def _mutate_header(data, rng):
    size = int.from_bytes(data[:8], "little")
    header = mutate_json(data[8 : 8 + size], rng)
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


# Folders


def make_old(name):
    return lambda folder: shutil.copytree(OLD / name, folder, dirs_exist_ok=True)


def make_mixture(folder):
    mixture = HybridMixture(2, max_iter=3, tol=0, random_state=0)
    mixture.fit(RNG.laplace(size=(60, 3))).save(folder)


def make_checkpoint(folder):
    rows = RNG.laplace(size=(60, 3))
    HybridMixture(2, max_iter=3, tol=0, random_state=0, checkpoint=folder).fit(rows)


def read_checkpoint(folder):
    config, tensors = load_folder(folder, MIXTURE_CHECKPOINT)
    for name, state in (("state", config.state), ("best", config.best)):
        if state is not None:
            part = {k.split(".", 1)[1]: v for k, v in tensors.items() if k.startswith(f"{name}.")}
            unpack_state(state, part, folder)


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
    HubnessCorrection.from_points(RNG.normal(size=(5, 3)), RNG.normal(size=(6, 3)), 2).save(folder)


def make_captioner(folder):
    units, dimension, words = 4, 3, ["ENDSENT", "red", "photo"]
    shapes = (4 * units, dimension), (4 * units, units), (4 * units,), (len(words), units), (len(words),)
    weights = Weights(*(RNG.normal(size=shape).astype(np.float32) for shape in shapes))
    points = RNG.normal(size=(len(words), dimension)).astype(np.float32)
    Captioner(CaptionVocabulary(words), points, weights, "key").save(folder)


def read_captioner(folder):
    captioner = Captioner.load(folder)
    if captioner.dimension <= 64:
        captioner.caption(np.ones((1, captioner.dimension)), beam=2, max_words=3)


def make_whitening(folder):
    whitening = Whitening("pca").fit(RNG.normal(size=(30, 3)))
    save_folder(folder, WHITENING, NoFields(), whitening.to_tensors())


def read_model(folder):
    model = ImageTextModel.load(folder)
    model.encode_text(["red green", "a blue photo"])
    model.image_points(np.ones((1, len(model.joint_space.projections.x_weights)), np.float32))
    assert model.cca.scale is not None
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
    curve = {task: [10.0, 20.0] for task in figures}
    result = Result("hglmm", "vgg19", figures, [{"reg_x": 0.1}], curve, 0.5, {"test": 1.0})
    (folder / "result.json").write_text(json.dumps(dump(result)))


def read_result(folder):
    from fishermix.experiments import tables

    results = [_load_result(folder / "result.json")]
    tables.as_csv("flickr8k", results)
    tables.as_page("flickr8k", results)


def make_npy(folder):
    np.save(folder / "rows.npy", RNG.normal(size=(20, 3)).astype(np.float32))


def make_parquet(folder):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({name: RNG.normal(size=20) for name in "abc"})
    pyarrow.parquet.write_table(table, folder / "rows.parquet", row_group_size=8)


def make_safetensors(folder):
    from safetensors.numpy import save_file

    save_file({"rows": RNG.normal(size=(20, 3)).astype(np.float32)}, folder / "rows.safetensors")


def read_table(name):
    def read(folder):
        table = open_table(folder / name)
        table.read(0, min(table.shape[0], 50) if table.shape[1] < 1000 else 0)

    return read


def make_index(folder):
    from fishermix.retrieval.store import Entry, Stamp

    with closing(LocalStore(folder)) as store:
        store.adopt("key", 3)
        with store.writing():
            for number in range(6):
                vector = RNG.normal(size=3).astype(np.float32)
                store.write([Entry(f"/photos/{number}.jpg", Stamp(9, 9), bytes([number]) * 32, vector, None)])
            store.write([Entry("/photos/bad.jpg", Stamp(1, 1), None, None, "damaged")], ["/photos/5.jpg"])
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def read_index(folder):
    for name in ("index.sqlite-wal", "index.sqlite-shm"):
        (folder / name).unlink(missing_ok=True)
    with closing(LocalStore(folder)) as store:
        summary = store.summary()
        store.stamps()
        if 0 < summary.dimension < 100:
            store.nearest(np.ones((1, summary.dimension), np.float32), 3)
            store.sample_scores(np.ones(summary.dimension, np.float32), 10)
        store.id_of("/photos/1.jpg")
        store.verify()


class TinyEncoder:
    key, max_pixels_, n_features = "tiny", 100, 3


def make_features(folder):
    with closing(_FeatureCache(folder, TinyEncoder())) as cache:
        cache.new_vectors = [("tiny", bytes([n]) * 32, np.ones(3, "<f4").tobytes()) for n in range(4)]
        cache.new_failures = [("tiny", bytes([9]) * 32, 100, "damaged")]
        cache.new_files = [(b"/x", "1 2 3", bytes([1]) * 32)]
        cache._commit()


def read_features(folder):
    from fishermix.errors import FishermixError

    try:
        with closing(_FeatureCache(folder, TinyEncoder())) as cache:
            cache.contents = {str(n): bytes([n]) * 32 for n in range(5)}
            cache.collect(list(cache.contents))
            cache.find_failure(bytes([9]) * 32)
            cache._commit()
    except ERRORS as error:  # as `extract` does
        raise FishermixError(str(error)) from error


def make_word2vec(folder):
    words = [b"red", "größe".encode(), b"blue"]
    body = b"".join(word + b" " + RNG.normal(size=3).astype("<f4").tobytes() + b"\n" for word in words)
    (folder / "vectors.bin").write_bytes(b"3 3\n" + body)
    (folder / "vectors.txt").write_text("red 1 2 3\nblue 4 5 6\ngreen 0.5 1e-3 7\n")


def read_word2vec(folder):
    WordVectors.load(folder / "vectors.bin", max_bytes=10_000_000)


def make_karpathy(folder):
    images = [
        {
            "filename": f"{n}.jpg",
            "split": split,
            "sentids": [n],
            "imgid": n,
            "sentences": [{"raw": "A red dog .", "tokens": ["a", "red", "dog"], "sentid": n, "imgid": n}],
        }
        for n, split in enumerate(("train", "val", "test"))
    ]
    (folder / "dataset.json").write_text(json.dumps({"images": images, "dataset": "tiny"}))
    (folder / "images").mkdir()
    for n in range(3):
        (folder / "images" / f"{n}.jpg").write_bytes(b"")


def read_karpathy(folder):
    open_dataset(f"karpathy:{folder / 'dataset.json'}:{folder / 'images'}")


def make_picture(form):
    def make(folder):
        pixels = RNG.integers(0, 255, size=(24, 32, 3)).astype(np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, form)
        (folder / "picture").write_bytes(buffer.getvalue())

    return make


def read_picture(folder):
    open_photo((folder / "picture").read_bytes(), 1_000_000, side=8)


FOLDER = ("config.json", "config.json", "tensors-*")
KINDS = {
    "model": Kind(make_old("model"), read_model, FOLDER),
    "hubness": Kind(make_hubness, lambda folder: HubnessCorrection.load(folder, 3), FOLDER),
    "mixture": Kind(make_mixture, Mixture.load, FOLDER),
    "mixture checkpoint": Kind(make_checkpoint, read_checkpoint, FOLDER),
    "cca": Kind(make_cca, RegularizedCCA.load, FOLDER),
    "word vectors": Kind(make_vectors, read_vectors, FOLDER),
    "captioner": Kind(make_captioner, read_captioner, FOLDER),
    "captioner checkpoint": Kind(make_training, read_training, FOLDER),
    "whitening": Kind(
        make_whitening, lambda folder: Whitening.from_tensors(load_folder(folder, WHITENING)[1]), FOLDER
    ),
    "network sidecar": Kind(
        make_sidecar, lambda folder: Network.find(folder / "net.onnx").features_key("squeeze"), ("net.json",)
    ),
    "result": Kind(make_result, read_result, ("result.json",)),
    "npy table": Kind(make_npy, read_table("rows.npy"), ("rows.npy",)),
    "parquet table": Kind(make_parquet, read_table("rows.parquet"), ("rows.parquet",)),
    "safetensors table": Kind(make_safetensors, read_table("rows.safetensors"), ("rows.safetensors",)),
    "photo index": Kind(make_index, read_index, ("index.sqlite", "index.sqlite", "vectors-*.f32")),
    "feature cache": Kind(make_features, read_features, ("features.sqlite",)),
    "word2vec file": Kind(make_word2vec, read_word2vec, ("vectors.bin",)),
    "GloVe file": Kind(
        make_word2vec, lambda folder: WordVectors.load(folder / "vectors.txt"), ("vectors.txt",)
    ),
    "karpathy json": Kind(make_karpathy, read_karpathy, ("dataset.json",)),
    **{
        f"{form} picture": Kind(make_picture(form), read_picture, ("picture",))
        for form in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
    },
}
