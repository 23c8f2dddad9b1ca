"""Every table and figure by name, and what each needs; light, for the command line."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A table or figure of the paper."""

    kind: str  # table, figure
    title: str
    needs: str
    masks: str = "scored"  # which images must have masks: scored, trained, none


NAMES: Mapping[str, Entry] = {
    "ablation": Entry("table", "what each consistency brings", "4 trainings"),
    "methods": Entry("table", "other methods on the same classifier", "1 training"),
    "backbones": Entry("table", "MCTformer, MCTformer + ACR and ACR on one backbone", "3 trainings"),
    "augmentations": Entry("table", "the second view, eight kinds", "8 trainings"),
    "distances": Entry("table", "the distance between two attentions", "3 trainings"),
    "layers": Entry("table", "from which block on gradients are fused (with its plot)", "1 training"),
    "computation": Entry("table", "training memory, and maps per second", "no training", "none"),
    "pseudo": Entry("table", "from seeds to pseudo labels", "1 training, AffinityNet", "trained"),
    "segmentation": Entry("table", "predictions, class by class", "1 training, AffinityNet, a segmenter"),
    "maps": Entry("figure", "maps of each method", "1 training", "none"),
    "multi-class": Entry("figure", "maps of images with several classes", "1 training", "none"),
    "affinity": Entry("figure", "affinity matrices: baseline, activation only, ACR", "3 trainings", "none"),
    "source-pixels": Entry(
        "figure", "what chosen pixels attend to: baseline, activation only, ACR", "3 trainings", "none"
    ),
    "examples": Entry("figure", "segmentation examples", "1 training, AffinityNet, a segmenter", "none"),
}
WITH_ROWS = ("ablation", "methods", "backbones", "augmentations", "distances")  # --rows chooses among theirs


def listing() -> str:
    """One line for each table and figure."""
    told = [
        f"  {name:14} {entry.title:66} {entry.needs}{'' if entry.masks == 'none' else '; masks'}"
        for name, entry in NAMES.items()
    ]
    tables = sum(entry.kind == "table" for entry in NAMES.values())
    return "\n".join(["tables", *told[:tables], "figures", *told[tables:], *_NOTE])


_NOTE = (
    "trainings are those of one random seed (--random-seeds N: N times as many); the same training is done once for",
    "all tables in the same --out. masks: the images to score need them.",
)
