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


def is_run(out: Path) -> bool:
    """Whether ``out`` is the folder of a run."""
    return (out / CONFIG).is_file() or any((out / folder).is_dir() for folder in FOLDERS)


def seed_file(folder: Path, name: str) -> Path:
    """The maps of the image ``name``."""
    return folder / f"{name}.npz"


def label_file(folder: Path, name: str) -> Path:
    """The mask, pseudo label or confident regions of the image ``name``."""
    return folder / f"{name}.png"


def skipped_file(folder: Path, shard: tuple[int, int]) -> Path:
    """The images that part i of n of a stage could not use."""
    return folder / f"skipped_{shard[0]}_of_{shard[1]}.json"
