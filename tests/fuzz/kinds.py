"""Every kind of file that fishermix reads: how to make valid seeds, and how to read a damaged one.

Seeds are written by the code that saves such files, with the schema that reads them.
"""

import bz2
import gzip
import json
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fishermix.caption.captioner import Captioner
from fishermix.caption.decoding import Weights
from fishermix.caption.vocabulary import CaptionVocabulary
from fishermix.cca import RegularizedCCA
from fishermix.experiments.reproduce import Result, _load_result
from fishermix.mixture import HybridMixture, Mixture
from fishermix.mixture.checkpoint import KIND as MIXTURE_CHECKPOINT
from fishermix.mixture.checkpoint import unpack_state
from fishermix.model.calibration import Calibration, load_calibration, save_calibration
from fishermix.model.hubness import HubnessCorrection
from fishermix.model.model import ImageTextModel
from fishermix.model.pool import Pool
from fishermix.model.training import WHITENING, NoFields
from fishermix.retrieval.details import Details, Filter
from fishermix.retrieval.sqlite_store import LocalStore
from fishermix.rows.files import open_table
from fishermix.schemas import DATABASE_ERRORS, dump
from fishermix.storage import load_folder, save_folder
from fishermix.text.vectors import WordVectors
from fishermix.text.whitening import Whitening
from fishermix.vision.feature_cache import _FeatureCache
from fishermix.vision.network_file import EXAMPLE, Network
from tests.fuzz.datasets import DATASETS
from tests.fuzz.kind import Kind
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.networks import NETWORKS
from tests.fuzz.pictures import PICTURES
from tests.fuzz.rows import Rows

OLD = Path(__file__).parent.parent / "folders_of_0_1"
RNG = np.random.default_rng(0)


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


def make_calibration(folder):
    numbers = {"intercept": -3, "score": 8, "deviations": 0.4, "log_photos": -0.6, "log_words": -0.5}
    save_calibration(folder, Calibration(model_key="tiny", **numbers))


def make_pool(folder):
    Pool(["a dog", "a cat"], np.eye(2, 3, dtype=np.float32), "a test").save(folder, "tiny")


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
            known = Details("2014-05-06T07:08:09", "exif", "camera", 1.5, 2.5, 40, 30)
            store.write_details({f"/photos/{number}.jpg": known for number in range(4)})
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
        store.paths_without_details()
        every = Filter("2001", "2030", "photos", "camera", "1,1,100000km", "landscape")
        for path, details in store.details().items():
            every.matches(path, details)
            details.as_json()
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
            cache.list_missing(["/x"])
            cache.contents = {str(n): bytes([n]) * 32 for n in range(10)}
            cache.collect(list(cache.contents))
            cache._commit()
    except DATABASE_ERRORS as error:  # as `extract` does
        raise FishermixError(str(error)) from error


def make_word2vec(folder):
    words = [b"red", "größe".encode(), b"blue"]
    body = b"".join(word + b" " + RNG.normal(size=3).astype("<f4").tobytes() + b"\n" for word in words)
    (folder / "vectors.bin").write_bytes(b"3 3\n" + body)
    (folder / "vectors.txt").write_text("red 1 2 3\nblue 4 5 6\ngreen 0.5 1e-3 7\n")


def read_word2vec(folder):
    WordVectors.load(folder / "vectors.bin", max_bytes=10_000_000)


@dataclass(frozen=True)
class Compressed(Kind):
    """Damages the content and compresses it again, or the compressed file itself."""

    packer: object = gzip

    def mutate(self, seed, rng):
        [(name, data)] = [(name, data) for name, data in seed.items() if name in self.files]
        if rng.random() < 0.3:
            return name, mutate_bytes(data, rng)
        return name, self.packer.compress(mutate_bytes(self.packer.decompress(data), rng))


def make_compressed(packer):
    def make(folder):
        make_word2vec(folder)
        data = (folder / "vectors.bin").read_bytes()
        (folder / "vectors.packed").write_bytes(packer.compress(data))

    return make


def read_compressed(folder):
    WordVectors.load(folder / "vectors.packed", max_bytes=10_000_000)


FOLDER = ("config.json", "config.json", "tensors-*")
KINDS = {
    "model": Kind(make_old("model"), read_model, FOLDER),
    "hubness": Kind(make_hubness, lambda folder: HubnessCorrection.load(folder, 3), FOLDER),
    "mixture": Kind(make_mixture, Mixture.load, FOLDER),
    "mixture checkpoint": Kind(make_checkpoint, read_checkpoint, FOLDER),
    "calibration": Kind(
        make_calibration, lambda folder: load_calibration(folder, "tiny"), ("calibration.json",)
    ),
    "sentence pool": Kind(make_pool, lambda folder: Pool.load(folder, "tiny", 3), FOLDER),
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
    "photo index": Kind(make_index, read_index, ("index.sqlite", "index.sqlite", "vectors-*.f32"), True),
    "rows of an index": Rows(make_index, read_index, ("index.sqlite",), restores_all=True),
    "feature cache": Kind(make_features, read_features, ("features.sqlite",), True),
    "word2vec file": Kind(make_word2vec, read_word2vec, ("vectors.bin",)),
    "GloVe file": Kind(
        make_word2vec, lambda folder: WordVectors.load(folder / "vectors.txt"), ("vectors.txt",)
    ),
    **{
        f"{name} word vectors": Compressed(
            make_compressed(packer), read_compressed, ("vectors.packed",), packer=packer
        )
        for name, packer in (("gzip", gzip), ("bzip2", bz2))
    },
    **DATASETS,
    **PICTURES,
    **NETWORKS,
}
