"""Kill processes at random moments, again and again: python tests/kills.py [--kills N] [COMMAND ...]

Each round starts a training in a fresh folder, kills it (SIGKILL) at a random moment, starts it again, and so
on; the last start is not killed. The result must be that of a run that nobody interrupted, bit by bit. The
command `library` kills two processes that change a photo library at the same time, and checks that nothing
is lost.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

TESTS = Path(__file__).parents[1] / "packages/fishermix-photos/tests"
sys.path[:0] = [str(TESTS / "vision"), str(TESTS)]

COLORS = {"red": (220, 30, 30), "green": (30, 160, 40), "blue": (30, 60, 220), "yellow": (230, 220, 30)}
START = "from fishermix_photos.cli import main; main()"
KILLS_PER_ROUND = 5


def make_world(folder):
    """Photos of four colors with captions, word vectors, a tiny network, and a model to caption with."""
    from fishermix import WordVectors
    from tiny_network import write_tiny_network

    network = write_tiny_network(folder / "network")
    (folder / "photos" / "images").mkdir(parents=True)
    rng, lines = np.random.default_rng(0), []
    for number in range(40):
        color = list(COLORS)[number % 4]
        pixels = np.clip(rng.normal(COLORS[color], 25, size=(40, 40, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / "images" / f"{number}.png")
        split = ("train", "train", "train", "val", "test")[number // 4 % 5]
        captions = [f"a {color} photo", f"this is {color}", f"one {color} wall"]
        lines.append(json.dumps({"image": f"{number}.png", "captions": captions, "split": split}))
    (folder / "photos" / "captions.jsonl").write_text("\n".join(lines))
    words = [*COLORS, "a", "photo", "this", "is", "one", "wall", *(f"word{n}" for n in range(400))]
    WordVectors(words, rng.laplace(size=(len(words), 6)).astype(np.float32)).save(folder / "vectors")
    run(commands(folder, network)["train"](folder), folder)
    return network


def commands(world, network):
    """For each command: place -> arguments; everything it writes is in `place`."""
    data, vectors = f"folder:{world / 'photos'}", ["--vectors", str(world / "vectors")]
    size = ["--set", f"encoders={network}"]
    return {
        "train": lambda place: [
            *("train", "--data", data, "--out", str(place / "model"), "--work", str(place / "work")),
            *("--recipe", "paper", "--set", "mixture_components=3", "--set", "n_components=4"),
            *(*vectors, *size),
        ],
        "captioner train": lambda place: [
            *("captioner", "train", "--data", data, "--model", str(place / "model"), "--set", "min_count=1"),
            *("--work", str(place / "work"), "--set", "epochs=4"),
        ],
        "reproduce": lambda place: [
            *("reproduce", data, "--work", str(place / "work"), "--json", str(place / "table.json")),
            *("--variants", "mean,gmm,hglmm", *vectors, *size),
        ],
    }


def prepare(name, world, place):
    place.mkdir()
    if name == "captioner train":
        shutil.copytree(world / "model", place / "model")


def start(arguments, world):
    with open(world / "log.txt", "ab") as log:
        environment = os.environ | {"FISHERMIX_HOME": str(world / "home"), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, "-c", START, *arguments], env=environment, stdout=log, stderr=log
        )


def run(arguments, world):
    process = start(arguments, world)
    if process.wait():
        raise AssertionError((world / "log.txt").read_text()[-3000:])


def digest(place):
    """The hash of a result: tensors and numbers, without the seconds it took."""
    found = hashlib.sha256()
    for path in sorted([*place.glob("model/**/config.json"), *place.glob("table.json")]):
        found.update(json.dumps(_without_seconds(json.loads(path.read_text())), sort_keys=True).encode())
    return found.hexdigest()


def _without_seconds(value):
    if isinstance(value, dict):
        return {key: _without_seconds(part) for key, part in value.items() if key != "seconds"}
    return [_without_seconds(part) for part in value] if isinstance(value, list) else value


def kill_at_random(name, world, network, scratch, kills, seed=0, per_round=KILLS_PER_ROUND):
    """The number of kills that hit a running command. Raises an error if a result differs."""
    rng, make = random.Random(f"{name} {seed}"), commands(world, network)[name]
    prepare(name, world, scratch / "whole")
    begun = time.monotonic()
    run(make(scratch / "whole"), world)
    duration, wanted, hit, rounds = time.monotonic() - begun, digest(scratch / "whole"), 0, 0
    while hit < kills:
        place = scratch / f"round{rounds}"
        rounds += 1
        prepare(name, world, place)
        for _ in range(min(per_round, kills - hit)):
            process, begun = start(make(place), world), time.monotonic()
            try:
                process.wait(rng.uniform(0.2, 1.0) * duration)
                duration = min(duration, time.monotonic() - begun)  # the machine has become idle
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                hit += 1
        run(make(place), world)
        if digest(place) != wanted:
            raise AssertionError(f"{name}: {place} differs from the uninterrupted run (seed {seed})")
        shutil.rmtree(place)
        print(f"{name}: {hit} kills so far", file=sys.stderr, flush=True)
    return hit


def kill_library(scratch, kills, seed):
    """Kill two writers of one photo library at once."""
    from library.library_kills import kill_writers

    scratch.mkdir()
    hit = kill_writers(scratch, kills, seed)
    print(f"library: {hit} kills of two writers at once, nothing is lost", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="*", default=["library", "train", "captioner train", "reproduce"])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if "library" in given.command:
            kill_library(Path(folder, "library"), given.kills, given.seed)
        trainings = [name for name in given.command if name != "library"]
        world = Path(folder, "world")
        world.mkdir()
        network = make_world(world) if trainings else None
        for name in trainings:
            scratch = Path(folder, name)
            scratch.mkdir()
            hit = kill_at_random(name, world, network, scratch, given.kills, given.seed)
            print(f"{name}: {hit} kills, the result is always that of the uninterrupted run", flush=True)


if __name__ == "__main__":
    main()
