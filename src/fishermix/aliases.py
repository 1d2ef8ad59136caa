"""Names of 0.1 that still work: the one table of them, and the importer that honours it.

Importing an old module or using an old name warns with a `DeprecationWarning` that gives the new one. Keys of
recipes, options and JSON that changed their name are translated by whoever reads them, from the same table.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar, cast

# Old module: new module. All names are below `fishermix.`.
MODULES = {
    "caption.corpus": "experiments.captions",
    "caption.dictionary": "caption.vocabulary",
    "caption.examples": "caption.batches",
    "caption.measures": "evaluation.captions",
    "caption.originality": "evaluation.captions",
    "caption.page": "experiments.captions",
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
    "retrieval.local_check": "retrieval.sqlite_check",
    "retrieval.local_schema": "retrieval.sqlite_schema",
    "retrieval.local_store": "retrieval.sqlite_store",
    "retrieval.nearest": "retrieval.exact_search",
    "retrieval.ranks": "evaluation.ranks",
    "retrieval.sheet": "retrieval.contact_sheet",
    "retrieval.shortlist": "retrieval.faiss_index",
    "retrieval.thumbnails": "retrieval.contact_sheet",
    "saved": "model.folder",
    "text.formats": "text.word_vector_files",
    "text.lexicon": "text.tokens",
    "text.sentences": "text.encoder",
    "text.sums": "text.sentence_vectors",
    "text.whitening_map": "text.sentence_vectors",
    "text.word_blocks": "text.sentence_vectors",
    "text.words": "text.vectors",
    "training": "model.training",
    "vision.adding": "vision.install",
    "vision.fusion": "vision.encoders",
    "vision.graphs": "vision.onnx_builder",
    "vision.networks": "vision.network_file",
    "vision.store": "vision.feature_cache",
    "vision.views": "vision.crops",
}

# Old name, of any of the modules above: new name.
NAMES = {
    "Components": "MixtureParameters",
    "Crowding": "HubnessCorrection",
    "Dictionary": "CaptionVocabulary",
    "FittedParameters": "MixtureParameters",
    "Lexicon": "WordLookup",
    "Parts": "JoinedTable",
    "SentenceSums": "SentenceVectors",
    "Shortlist": "FaissIndex",
    "Source": "RowSource",
    "Totals": "Statistics",
    "WhiteningMap": "WhiteningTransform",
    "WordList": "Vocabulary",
    "automatic_cut": "estimate_threshold",
    "build_shortlist": "build_faiss_index",
    "caption_set": "make_caption_set",
    "contact_sheet": "render_contact_sheet",
    "jpeg": "make_thumbnail",
    "nearest_rows": "find_nearest",
    "open_shortlist": "open_faiss_index",
    "page": "render_page",
    "photos_in": "list_photos",
    "readable_name": "replace_undecodable",
    "recipe_named": "find_recipe",
}

# Old key of a model's recipe: new key.
RECIPE_KEYS = {
    "bank": "csls_bank_size",
    "components": "mixture_components",
    "kept": "n_components",
    "neighbours": "csls_neighbours",
    "row": "variant",
    "scales": "correlation_powers",
}


F = TypeVar("F", bound=Callable[..., Any])


def accept_old_arguments(**names: str) -> Callable[[F], F]:
    """Decorate a function that renamed keyword arguments: `accept_old_arguments(old="new")`."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for old, new in names.items():
                if old in kwargs:
                    if new in kwargs:
                        raise TypeError(f"{old} is the old name of {new}: pass {new} only.")
                    warnings.warn(f"The argument {old} is now {new}.", DeprecationWarning, stacklevel=2)
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return cast(F, call)

    return decorate


class _OldModule(ModuleType):
    """Stands for a module that moved: its names are those of the new one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(self.__dict__["__new__name"]), NAMES.get(name, name))


class _OldModules:
    """A finder and loader of old modules. It derives from nothing: importlib.abc takes 10 ms to import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return (
            ModuleSpec(fullname, cast("Any", self))
            if fullname.removeprefix("fishermix.") in MODULES
            else None
        )

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
