"""Files of results: rows of figures, each with the run that measured it; no row names a host or a folder."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fishermix import __version__
from fishermix.joint.ranks import Comparison
from fishermix.saved import hash_values, sha256_of_file, write_atomically
from fishermix_photos import find_commit
from fishermix_photos.model.model import ImageTextModel

from fishermix_lab.datasets.readers import KINDS, Dataset
from fishermix_lab.features import hash_photos
from fishermix_lab.stages import VERSIONS


def write_rows(
    file: Path,
    rows: Iterable[dict[str, Any]],
    comparisons: Mapping[str, Mapping[str, Comparison]] | None = None,
) -> None:
    """Add rows to a file; one that has the same command and label, with any number of seeds, is replaced.

    comparisons : of pairs of labels, "HGLMM - GMM"; those of the file with a label of the rows are removed
    """
    found = json.loads(file.read_bytes()) if file.exists() else {}
    kept = {_identify(row): row for row in found.get("rows", [])}
    new = {_identify(row): row for row in rows}
    labels = {row["label"] for row in new.values()}
    pairs = {
        pair: compared
        for pair, compared in found.get("comparisons", {}).items()
        if labels.isdisjoint(pair.split(" - "))
    }
    pairs |= {
        pair: {name: one._asdict() for name, one in compared.items()}
        for pair, compared in (comparisons or {}).items()
    }
    content = {"rows": list((kept | new).values()), **({"comparisons": pairs} if pairs else {})}
    write_atomically(file, (json.dumps(content, indent=1) + "\n").encode())


def _identify(row: dict[str, Any]) -> tuple[str, str]:
    return re.sub(r" --seeds \d+", "", row.get("command", "")), row["label"]


def describe_command(command: str, *arguments: object, **options: Any) -> str:
    """The command of a row.

    arguments : None is omitted
    options : values by the name of the option; None and empty lists are omitted
    """
    words = [command, *(hide_folders(str(one)) for one in arguments if one is not None)]
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            words += [] if one is None else [f"--{name.replace('_', '-')}", hide_folders(str(one))]
    return " ".join(words)


def describe_software() -> dict[str, str]:
    """The version, the commit and the machine."""
    commit = find_commit()
    about = {"version": __version__, "machine": describe_machine()}
    return about | ({"commit": commit} if commit else {})


def hash_dataset(dataset: Dataset) -> str:
    """The hash of the photos, sentences and splits of a data set."""
    photos = hash_photos(dataset.image_paths)
    protocol = dataset.protocol and asdict(dataset.protocol)
    return hash_values(photos, dataset.sentences, dataset.image_of, dataset.splits.tolist(), protocol)


def describe_evaluation(
    model: ImageTextModel, folder: Path, dataset: Dataset, stages: Sequence[str]
) -> dict[str, Any]:
    """The software, the hash of the model in `folder` and of the data, and the versions of the stages."""
    used = ["image features", "sentence vectors", *stages]
    used += ["sentence transformer"] if model.sentence_vectors.transformer is not None else []
    inputs = hash_values(sha256_of_file(folder / "config.json"), hash_dataset(dataset))
    versions = {stage: VERSIONS[stage] for stage in sorted(used)}
    return {**describe_software(), "images": len(dataset), "inputs": inputs, "stages": versions}


def hide_folders(value: str) -> str:
    """An option without the place of a data set (flickr8k:DIR), and with the names of absolute paths only."""
    kind, colon, _ = value.partition(":")
    if colon and kind in KINDS:
        return f"{kind}:DIR"
    parts = re.split("([=,])", value)
    return "".join(os.path.basename(part.rstrip("/")) if os.path.isabs(part) else part for part in parts)


def describe_machine() -> str:
    """The processor and the number of cores."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"^model name\s*: (.+)$", info.read_text(), re.MULTILINE)):
        name = found[1]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{name}, {cores} core{'s' * (cores > 1)}"


def is_stale(stages: dict[str, int]) -> bool:
    """Whether a stage has changed since figures were measured with these versions of the stages."""
    return any(VERSIONS.get(stage) != version for stage, version in stages.items())
