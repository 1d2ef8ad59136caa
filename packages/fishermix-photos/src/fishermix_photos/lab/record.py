"""What a file of figures says about the run that measured them; nothing in it names a host or a folder."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fishermix import __version__
from fishermix.runtime import find_commit
from fishermix.storage import hash_values, sha256_of_file

from fishermix_photos.lab.datasets import Dataset
from fishermix_photos.lab.stages import VERSIONS, open_stages
from fishermix_photos.model import ImageTextModel
from fishermix_photos.vision.encoder import image_networks
from fishermix_photos.vision.features import hash_photos


def describe_run(command: str, data: Iterable[str] = (), **options: Any) -> dict[str, Any]:
    """The command, the version, the commit and the machine.

    data : data sets, of which the kind is kept
    options : values by the name of the option; None, False and empty lists are omitted
    """
    words = [command, *(hide_place(spec) for spec in data)]
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None and one is not False:
                words += [f"--{name.replace('_', '-')}", *([] if one is True else [hide_folders(str(one))])]
    commit = find_commit()
    return {
        "command": " ".join(words),
        "version": __version__,
        **({"commit": commit} if commit else {}),
        "machine": describe_machine(),
    }


def hash_dataset(dataset: Dataset, encoder: Any, features: str | os.PathLike) -> str:
    """The hash of the photos, sentences and splits of a data set.

    features : the folder that keeps the hashes of the photos
    """
    photos = hash_photos(dataset.image_paths, image_networks(encoder)[0], features)
    protocol = dataset.protocol and asdict(dataset.protocol)
    return hash_values(photos, dataset.sentences, dataset.image_of, dataset.splits.tolist(), protocol)


def describe_evaluation(
    model: ImageTextModel,
    folder: Path,
    dataset: Dataset,
    stages: Sequence[str],
    work: str | os.PathLike | None,
) -> dict[str, Any]:
    """The hash of a saved model and of the data, and the versions of the stages that measure it.

    folder : the folder of the model
    work : the folder that keeps the hashes of the photos, or None
    """
    used = ["image features", "sentence vectors", *stages]
    used += ["sentence transformer"] if model.sentence_vectors.transformer is not None else []
    with open_stages(work) as opened:
        data = hash_dataset(dataset, model.image_encoder, opened.folder)
    inputs = hash_values(sha256_of_file(folder / "config.json"), data)
    return {"inputs": inputs, "stages": {stage: VERSIONS[stage] for stage in sorted(used)}}


def hide_place(data: str) -> str:
    """A data set of the command line without its place: flickr8k:DIR."""
    return re.sub(r":.*", ":DIR", data)


def hide_folders(value: str) -> str:
    """An option whose absolute paths are shortened to the names of the files."""
    parts = re.split("([=,])", value)
    return "".join(os.path.basename(part.rstrip("/")) if os.path.isabs(part) else part for part in parts)


def describe_machine() -> str:
    """The processor and the number of cores."""
    name, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"^model name\s*: (.+)$", info.read_text(), re.MULTILINE)):
        name = found[1]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{name}, {cores} core{'s' * (cores > 1)}"


def is_stale(stages: dict[str, int]) -> bool:
    """Whether a stage has changed since figures were measured with these versions of the stages."""
    return any(VERSIONS.get(stage) != version for stage, version in stages.items())
