"""Every file and folder name of a run, once for the whole package."""

from pathlib import Path

CONFIG = "config.toml"
TOKENS = "0_tokens"
CLASSIFIER = "1_classifier"
SEEDS = "2_seeds"
AFFINITY = "3_affinity"
PSEUDO = "4_pseudo"
SEGMENTER = "5_segmenter"
PREDICTIONS = "6_predictions"
CORRECTIONS = "corrections"
FOLDERS = (TOKENS, CLASSIFIER, SEEDS, AFFINITY, PSEUDO, SEGMENTER, PREDICTIONS)
SCORES = "scores.json"
CURVE = "scores.png"
CHECK = "check.json"
REPORT = "report.html"
GIVEN_TAGS = "tags.json"  # of a run that was given its tags in Python

MODEL = "model.safetensors"  # in the folder of a network, with the files below
MODEL_CONFIG = "config.json"
USE = "use"  # in MODEL_CONFIG: how the network is to be used
USE_VERSION = "use_version"
BEST = "best"
LOG = "log.jsonl"
RESUME = "resume.safetensors"
BROKEN = "broken_images.json"
TAGS = "tags.json"  # in CLASSIFIER: what is suspicious about the tags
EARNED = "earned.json"  # in CLASSIFIER: whether the training was kept, and why

REGIONS = "regions"  # in AFFINITY
REGIONS_PICTURE = "regions.png"
BACKGROUND = "background.json"  # in PSEUDO
CORRECTED_TAGS = "tags.json"  # in CORRECTIONS

BEGUN = "begun.json"  # what a stage is made from, in its folder
DONE = "done.json"
MADE_BY = "made_by.json"
FORMAT_NOTE = "format.json"  # in the folder of a run: its format
FORMAT = 1  # of the folders and files of a run; a later tagmask opens every earlier one
CONTENTS = ".contents.json"  # hashes of the user's files, in the folder of the run


def is_run(out: Path) -> bool:
    """Return True if ``out`` is the folder of a run."""
    return (out / CONFIG).is_file() or any((out / folder).is_dir() for folder in FOLDERS)


def seed_file(folder: Path, name: str) -> Path:
    """Return the file with the maps of an image.

    Args:
        folder: Folder of the seeds.
        name: Name of the image.
    """
    return folder / f"{name}.npz"


def label_file(folder: Path, name: str) -> Path:
    """Return the file with the mask, pseudo label or confident regions of an image.

    Args:
        folder: Folder of the labels.
        name: Name of the image.
    """
    return folder / f"{name}.png"


def skipped_file(folder: Path, shard: tuple[int, int]) -> Path:
    """Return the file that lists the images that a part of a stage could not use.

    Args:
        folder: Folder of the stage.
        shard: Number of the part, from 0, and the number of parts.
    """
    return folder / f"skipped_{shard[0]}_of_{shard[1]}.json"
