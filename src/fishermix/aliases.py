"""Names of 0.1 that still work: the one table of them, and the importer that honours it.

Importing an old module or using an old name warns with a `DeprecationWarning` that gives the new one. Keys of
recipes, options and JSON that changed their name are translated by whoever reads them, from the same table.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Old module: new module. All names are below `fishermix.`.
MODULES = {
    "caption.dictionary": "caption.vocabulary",
    "caption.examples": "caption.batches",
    "caption.measures": "evaluation.captions",
    "caption.recipes": "caption.recipe",
    "caption.training": "caption.trainer",
    "cca.panels": "cca.blocked_cholesky",
    "cli.opening": "cli.common",
    "crowding": "model.hubness",
    "datasets.folder": "datasets.captions_file",
    "datasets.opening": "datasets.registry",
    "datasets.reading": "datasets.parsing",
    "distributed.opening": "rows.open",
    "distributed.streaming": "rows.stream",
    "distributed.tables": "rows.files",
    "fisher_gradients": "fisher.scores",
    "fisher_kernels": "fisher.kernels",
    "mixture.blocks": "rows.blocks",
    "mixture.components": "mixture.parameters",
    "mixture.density": "mixture.mixture",
    "mixture.fits": "mixture.m_step",
    "mixture.fitted": "mixture.parameters",
    "mixture.fitting": "mixture.em",
    "mixture.medians": "mixture.weighted_median",
    "mixture.saving": "mixture.checkpoint",
    "mixture.start": "mixture.initialization",
    "recipes": "model.recipe",
    "retrieval.cut": "retrieval.threshold",
    "retrieval.folder": "retrieval.photo_files",
    "retrieval.local_store": "retrieval.sqlite_store",
    "retrieval.nearest": "retrieval.exact_search",
    "retrieval.ranks": "evaluation.ranks",
    "retrieval.sheet": "retrieval.contact_sheet",
    "retrieval.shortlist": "retrieval.faiss_index",
    "saved": "model.folder",
    "text.formats": "text.word_vector_files",
    "text.lexicon": "text.lookup",
    "text.sentences": "text.encoder",
    "text.sums": "text.sentence_vectors",
    "text.words": "text.vocabulary",
    "training": "model.training",
    "vision.adding": "vision.install",
    "vision.graphs": "vision.onnx_builder",
    "vision.networks": "vision.network_file",
    "vision.store": "vision.feature_cache",
    "vision.views": "vision.crops",
}

# Old name, of any of the modules above: new name.
NAMES = {
    "Components": "MixtureParameters",
    "Crowding": "HubnessCorrection",
    "FittedParameters": "MixtureParameters",
    "Lexicon": "WordLookup",
    "Parts": "JoinedTable",
    "Source": "RowSource",
    "Totals": "Statistics",
    "WordList": "Vocabulary",
}


class _OldModule(ModuleType):
    """Stands for a module that moved: its names are those of the new one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(self.__dict__["__new__name"]), NAMES.get(name, name))


class _OldModules(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.removeprefix("fishermix.") in MODULES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = f"fishermix.{MODULES[spec.name.removeprefix('fishermix.')]}"
        warnings.warn(f"{spec.name} is now {new}.", DeprecationWarning, stacklevel=4)
        module = _OldModule(spec.name)
        module.__dict__["__new__name"] = new
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def install() -> None:
    """Let old module names be imported; asked only for modules that do not exist."""
    if not any(isinstance(finder, _OldModules) for finder in sys.meta_path):
        sys.meta_path.append(_OldModules())
