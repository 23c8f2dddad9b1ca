"""The kinds of tag classifier: by the name that ``tagmask train --kind`` takes, and from a folder."""

from pathlib import Path

from tagmask.errors import TagmaskError
from tagmask.files import read_json
from tagmask.models.classifier import Classifier
from tagmask.models.mct import MctClassifier
from tagmask.models.storage import CONFIG

KINDS: dict[str, type[Classifier]] = {"acr": Classifier, "mct": MctClassifier}


def load_classifier(path: Path | str) -> Classifier:
    """The classifier that a training wrote into the folder ``path``, of the kind that its config.json names."""
    config = read_json(Path(path) / CONFIG)
    named = config.get("kind", config.get("model")) if isinstance(config, dict) else None
    kind = next((one for one in KINDS.values() if one.kind == named), None)
    if kind is None:
        raise TagmaskError(f"{path} does not hold a classifier; give the folder that `tagmask train` wrote.")
    return kind.load(path)
