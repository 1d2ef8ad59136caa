"""`fishermix train`, `evaluate` and `reproduce`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from fishermix.errors import FishermixError

from fishermix_photos.cli import app
from fishermix_photos.cli.common import expect_folder_of
from fishermix_photos.cli.output import say, say_table, tell

if TYPE_CHECKING:
    from fishermix_photos.lab.datasets import Dataset
    from fishermix_photos.lab.recipe import Recipe
    from fishermix_photos.lab.reproduce import Result
    from fishermix_photos.model import ImageTextModel

# Written out, because `--help` does not wait for the recipes and their schema.
RECIPE_HELP = "One of paper, best, shipped."
VARIANT_HELP = "mean, gmm, lmm, hglmm, gmm+hglmm, logistic, four families"
DataOption = Annotated[
    list[str],
    typer.Option("--data", help="A data set as KIND:PATH, such as flickr8k:DIR. Can be given several times."),
]
OnlyTrainOption = Annotated[
    list[str], typer.Option(help="Like --data, but its validation photos are not used at all.")
]


ComponentsOption = Annotated[
    int | None,
    typer.Option("--components", min=1, help="Components of each mixture. Default: the recipe's."),
]
EncoderOption = Annotated[
    str | None,
    typer.Option(
        help="Image networks, separated by commas; their vectors are concatenated. The paper used vgg19 and "
        "overfeat. Default: the recipe's."
    ),
]
TransformerOption = Annotated[
    str | None,
    typer.Option(
        help="Sentence transformer next to the Fisher vectors: all-MiniLM-L6-v2, a folder, or none. "
        "Default: the recipe's."
    ),
]
TransformerWeightOption = Annotated[
    float | None, typer.Option(help="Factor of the transformer's vectors. Default: the recipe's.")
]
VectorsOption = Annotated[
    Path, typer.Option(help="Word vectors: a file, or a folder written by `fishermix vectors import`.")
]
JsonFileOption = Annotated[Path | None, typer.Option("--json", help="Write the results to this JSON file.")]


ModelOutOption = Annotated[Path, typer.Option("--out", help="The folder to write the model to.")]
RecipeOption = Annotated[str, typer.Option(help=RECIPE_HELP)]
VariantOption = Annotated[
    str | None,
    typer.Option(help=f"The kind of sentence vector, one of {VARIANT_HELP}. Default: the recipe's."),
]
DimensionsOption = Annotated[
    int | None,
    typer.Option("--n-components", min=1, help="Dimensions of the joint space. Default: the recipe's."),
]
WordsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Vocabulary size: all caption words, then the most frequent others. "
        "Default: all words of the vectors.",
    ),
]
StagesOption = Annotated[
    Path | None,
    typer.Option("--work", help="Folder for finished stages and image features. Default: OUT.work."),
]
HalfOption = Annotated[bool, typer.Option("--half", help="Store vectors and weights in half precision.")]
ClusterOption = Annotated[
    str | None, typer.Option(help="Train on a Dask cluster: tcp://HOST:PORT, or local:N for N processes.")
]


@app.command(epilog="Example: fishermix train --data flickr8k:DIR --out model/")
def train(
    out: ModelOutOption,
    data: DataOption = [],  # noqa: B006 - typer reads the default, nobody changes it
    data_only_train: OnlyTrainOption = [],  # noqa: B006
    vectors: VectorsOption = Path(".cache/word2vec"),
    recipe: RecipeOption = "best",
    variant: VariantOption = None,
    mixture_components: ComponentsOption = None,
    n_components: DimensionsOption = None,
    encoder: EncoderOption = None,
    transformer: TransformerOption = None,
    transformer_weight: TransformerWeightOption = None,
    work: StagesOption = None,
    words: WordsOption = None,
    half: HalfOption = False,
    cluster: ClusterOption = None,
) -> None:
    """Train a model on captioned photos.

    Run the same command again to resume after an interruption.
    """
    from fishermix.distributed.cluster import connect
    from fishermix.storage import make_place

    from fishermix_photos.lab.datasets import combine
    from fishermix_photos.lab.stages import Stages
    from fishermix_photos.lab.training import train_model
    from fishermix_photos.model import MODEL_KIND

    chosen = _choose_recipe(
        recipe,
        encoder,
        transformer,
        variant=variant,
        mixture_components=mixture_components,
        n_components=n_components,
        transformer_weight=transformer_weight,
    )
    sets = open_training_data(data, data_only_train)
    check_vectors_exist(vectors)
    out = make_place(out.absolute(), MODEL_KIND)
    work = work or out.with_name(f"{out.name}.work")
    stages = Stages(work)
    with stages.hold():
        with connect(cluster) if cluster else nullcontext() as client:
            model = train_model(combine(sets), vectors, chosen, stages, client, words)
        model.save(out, half=half)
        _evaluate_sets(model, sets, work / "features")
    say(f"The model is in {out}. You can delete {work}, which keeps finished stages for the next run.")


def _evaluate_sets(model: ImageTextModel, sets: list[Dataset], features: Path) -> None:
    """Print the figures of the test photos of each data set, or of the dev photos if there are no others."""
    from fishermix_photos.lab.training import evaluate_model

    split = "test" if any((dataset.splits == "test").any() for dataset in sets) else "dev"
    for dataset in sets:
        if (dataset.splits == split).any():
            _print_figures(f"{dataset.name} {split}", evaluate_model(model, dataset.part(split), features))


@app.command(epilog="Example: fishermix evaluate model/ --data flickr8k:DIR --split test")
def evaluate(
    model: Annotated[
        Path | None, typer.Argument(help="Folder of a model. Default: the model in the package.")
    ] = None,
    data: DataOption = [],  # noqa: B006
    split: Annotated[str, typer.Option(help="The part to measure: train, dev or test.")] = "test",
    sample: Annotated[
        int | None, typer.Option(min=1, help="Measure on this many random photos of the split.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seeds the choice of --sample.")] = 0,
    work: Annotated[Path | None, typer.Option(help="Folder for image features. Default: not kept.")] = None,
    json_file: JsonFileOption = None,
) -> None:
    """Measure image search, image annotation and sentence similarity as in the paper."""
    from fishermix.storage import write_atomically

    from fishermix_photos.lab.datasets import combine, open_dataset
    from fishermix_photos.lab.training import evaluate_model
    from fishermix_photos.model import ImageTextModel

    if not data:
        raise FishermixError("Name a data set, such as --data flickr8k:DIR.")
    expect_folder_of(json_file)
    dataset = combine([open_dataset(spec) for spec in data])
    part = dataset.sample(split, sample, seed) if sample else dataset.part(split)
    figures = evaluate_model(ImageTextModel.load(model), part, work)
    _print_figures(f"{dataset.name} {split}", figures)
    if json_file:
        measured = {**figures, "data": dataset.name, "split": split, "images": len(part)}
        write_atomically(json_file, (json.dumps(measured, indent=1) + "\n").encode())


ReproduceArgument = Annotated[
    str,
    typer.Argument(
        help="A data set: flickr8k:DIR, flickr30k:DIR, pascal1k:DIR, coco:DIR, karpathy:… or folder:DIR."
    ),
]
VariantsOption = Annotated[
    str, typer.Option(help=f"Variants to measure, separated by commas, out of {VARIANT_HELP}.")
]
RepeatsOption = Annotated[
    int | None, typer.Option(min=1, help="Number of random splits. Default: the paper's.")
]
TestImagesOption = Annotated[
    int | None, typer.Option(help="Rank among this many random test images (COCO: 1000). Default: all.")
]
VariantStagesOption = Annotated[Path, typer.Option(help="Folder for finished stages and variants.")]
CsvOption = Annotated[
    Path | None, typer.Option("--csv", help="Write the table with the published figures to this CSV file.")
]


@app.command(epilog="Example: fishermix reproduce flickr8k:DIR --recipe best --csv table.csv")
def reproduce(
    data: ReproduceArgument,
    encoder: EncoderOption = None,
    variants: VariantsOption = "mean,gmm,lmm,hglmm,gmm+hglmm",
    mixture_components: ComponentsOption = None,
    repeats: RepeatsOption = None,
    recipe: RecipeOption = "paper",
    vectors: VectorsOption = Path(".cache/word2vec"),
    test_images: TestImagesOption = None,
    transformer: TransformerOption = None,
    transformer_weight: TransformerWeightOption = None,
    work: VariantStagesOption = Path(".cache/reproduce"),
    json_file: JsonFileOption = None,
    csv_file: CsvOption = None,
) -> None:
    """Measure the variants of the paper and print them next to the published tables.

    Finished variants are kept: run the same command again to resume after an interruption.
    """
    from fishermix.storage import write_atomically
    from fishermix.text.word_vectors import WordVectors
    from rich.console import Console

    from fishermix_photos.lab import reproduce as run
    from fishermix_photos.lab import tables
    from fishermix_photos.lab.datasets import open_dataset

    expect_folder_of(json_file, csv_file)
    changes = {"mixture_components": mixture_components, "transformer_weight": transformer_weight}
    chosen = _choose_recipe(recipe, encoder, transformer, **changes)
    names = variants.split(",")
    for name in names:
        chosen.with_(variant=name)  # raises before the work begins
    dataset = open_dataset(data)
    if repeats is not None and repeats > dataset.repeats:
        tell(f"{dataset.name} has official splits; --repeats {repeats} is ignored.")
    check_vectors_exist(vectors)
    kind = table_kind(dataset.name, test_images)
    results: list[Result] = []
    loaded = WordVectors.load(vectors)
    for result in run.reproduce(dataset, loaded, chosen, names, repeats, work, test_images):
        results.append(result)
        if json_file:
            run.write_json(results, json_file)
        if csv_file:
            write_atomically(csv_file, tables.as_csv(kind, results).encode())
        seconds = ", ".join(f"{name} {value:.0f} s" for name, value in result.seconds.items())
        tell(f"{result.variant}: {seconds}")
    Console(width=170).print(tables.as_text(kind, results))


def table_kind(name: str, test_images: int | None) -> str:
    """The published table to show next to a data set of this name."""
    for kind in ("flickr8k", "flickr30k", "pascal1k"):
        if kind in name:
            return kind
    if "coco" in name:
        return "coco-1k" if test_images == 1000 else "coco-5k"
    return name


def _choose_recipe(
    name: str, encoders: str | None, transformer: str | None, **changes: str | int | float | None
) -> Recipe:
    """The recipe with the options that are given."""
    from fishermix_photos.lab.recipe import find_recipe

    chosen = find_recipe(name).with_(**{key: value for key, value in changes.items() if value is not None})
    if encoders:
        chosen = chosen.with_(encoders=tuple(encoders.split(",")))
    if transformer:
        chosen = chosen.with_(transformer=None if transformer == "none" else transformer)
    return chosen


def check_vectors_exist(vectors: Path) -> None:
    if not vectors.exists():
        raise FishermixError(
            f"There are no word vectors in {vectors}. Run `make word2vec`, or name yours with --vectors."
        )


def open_training_data(data: list[str], data_only_train: list[str]) -> list[Dataset]:
    """The data sets of a training, the latter without their validation photos."""
    from fishermix_photos.lab.datasets import open_dataset

    sets = [open_dataset(spec) for spec in data]
    for dataset in map(open_dataset, data_only_train):
        sets.append(dataset.select((dataset.splits != "dev").nonzero()[0]))
    if not sets:
        raise FishermixError("Name at least one data set, such as --data flickr8k:DIR.")
    return sets


def _print_figures(title: str, figures: dict[str, dict[str, float]]) -> None:
    columns = ("r@1", "r@5", "r@10", "median", "mean")
    rows = [(task, *(f"{measures[column]:.1f}" for column in columns)) for task, measures in figures.items()]
    say_table(title, ("task", *columns), rows)
