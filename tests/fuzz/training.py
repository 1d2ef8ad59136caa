"""A tiny training of a captioner whose checkpoint is damaged. Apart from the others: it needs torch."""

from pathlib import Path

import torch
from fishermix.caption.captioner import Captioner
from fishermix.caption.network import CaptionNetwork, copy_weights
from fishermix.caption.trainer import Position, TrainingCheckpoint
from fishermix.caption.vocabulary import CaptionVocabulary

UNITS, DIMENSION, WORDS = 4, 3, ["ENDSENT", "red", "photo"]
FINGERPRINT = {"recipe": {"name": "tiny", "units": UNITS}, "seed": 0, "sentences": [3, 3], "points": 1.5}
RECORD = {"epoch": 1, "train_loss": 1.0, "dev_loss": 1.0, "bleu1": 1.0, "bleu2": 1.0, "bleu3": 1.0}
RECORD |= {"bleu4": 1.0, "rouge_l": 1.0, "cider_d": 1.0}


def make_parts():
    network = CaptionNetwork(DIMENSION, UNITS, len(WORDS), 0)
    mean = {name: value.detach().clone() for name, value in network.named_parameters()}
    return network, mean, torch.optim.AdamW(network.parameters(), 1e-3)


PARTS = []


def make_training(folder):
    """The folder becomes `state` of a checkpoint; `best` stays valid, next to it."""
    network, mean, optimizer = make_parts()
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    position = Position(1, 2, 3.0, 4, 1.0, 1, [RECORD])
    checkpoint = TrainingCheckpoint(Path(folder).parent / "training", FINGERPRINT)
    checkpoint.save(network, mean, optimizer, position)
    points = torch.ones(len(WORDS), DIMENSION).numpy()
    checkpoint.save_best(Captioner(CaptionVocabulary(WORDS), points, copy_weights(mean)))
    for path in (checkpoint.folder / "state").iterdir():
        path.rename(folder / path.name)
    (checkpoint.folder / "state").rmdir()
    (checkpoint.folder / "state").symlink_to(folder, target_is_directory=True)


def read_training(folder):
    if not PARTS:
        PARTS.extend(make_parts())
    state = Path(folder).parent / "training" / "state"
    if state.readlink() != folder:
        state.unlink()
        state.symlink_to(folder, target_is_directory=True)
    TrainingCheckpoint(state.parent, FINGERPRINT).restore(*PARTS, Position())
