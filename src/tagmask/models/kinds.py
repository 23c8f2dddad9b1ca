"""Networks of a run by the kind that their config.json names."""

from pathlib import Path

from tagmask.errors import TagmaskError, typed
from tagmask.files import read_json
from tagmask.layout import CONFIG, FOLDERS, MODEL_CONFIG
from tagmask.models.affinity_net import AffinityNet
from tagmask.models.classifier import Classifier
from tagmask.models.deeplab import DeepLabV2
from tagmask.models.head import HeadSegmenter
from tagmask.models.mct import MctClassifier

KINDS: dict[str, type[Classifier]] = {"acr": Classifier, "mct": MctClassifier}
"""Tag classifiers by the name that ``tagmask train --kind`` takes."""

Segmenter = DeepLabV2 | HeadSegmenter
RunNetwork = Classifier | Segmenter | AffinityNet
_NETWORKS: dict[str, type[RunNetwork]] = {
    network.kind: network
    for network in (Classifier, MctClassifier, DeepLabV2, HeadSegmenter, AffinityNet)
}


def load(path: Path | str) -> RunNetwork:
    """Load any network of a run from its folder, in eval mode.

    It may be a classifier, an MCTformer, an affinity network or a segmenter.
    """
    _check_finished(Path(path))
    config = read_json(Path(path) / MODEL_CONFIG)
    kind = config.get("kind") if isinstance(config, dict) else None
    if not isinstance(kind, str) or kind not in _NETWORKS:
        raise TagmaskError(
            f"{path} does not hold a network of tagmask; "
            "give a folder such as run/1_classifier or run/5_segmenter."
        )
    return _NETWORKS[kind].load(path)


def _check_finished(folder: Path) -> None:
    """Refuse the folder of a run whose network is not there yet, and say how to go on."""
    run = folder.parent
    is_of_run = folder.name in FOLDERS and (run / CONFIG).is_file()
    if is_of_run and folder.is_dir() and not (folder / MODEL_CONFIG).exists():
        raise TagmaskError(
            f"{folder} holds no network yet: the run was stopped before it was finished; "
            f"`{typed('tagmask', 'run', run)}` goes on."
        )


def load_classifier(path: Path | str) -> Classifier:
    """Load the tag classifier of a folder, of either kind."""
    network = load(path)
    if not isinstance(network, Classifier):
        raise TagmaskError(
            f"{path} does not hold a classifier; give the folder that `tagmask train` wrote."
        )
    return network


def load_segmenter(path: Path | str) -> Segmenter:
    """Load the segmentation network of a folder, of either kind."""
    network = load(path)
    if not isinstance(network, DeepLabV2 | HeadSegmenter):
        raise TagmaskError(
            f"{path} does not hold a segmenter; give the folder that `tagmask segment` wrote."
        )
    return network
