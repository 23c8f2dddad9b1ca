"""Every table and figure by name, where the paper has it, and what it needs; light, for the command line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

NO_TRAINING = "no training"


@dataclass(frozen=True)
class Entry:
    """A table or figure of the paper; tables and figures are counted in the order of paper and supplement."""

    where: str
    title: str
    maker: str  # function of a module of this package
    needs: str = "1 training"
    masks: Literal["scored", "trained", "none"] = "scored"  # which images must have masks
    rows: bool = False  # --rows chooses among its rows
    scores: bool = False  # --scores adds the row of a finished run


_SEEDS, _LABELS, _FIGURES = "seed_tables:", "label_tables:", "figures:"
_LABELLED, _SEGMENTED = "1 training, AffinityNet", "1 training, AffinityNet, a segmenter"
# fmt: off
TABLES: Mapping[str, Entry] = {
    "compare-coco": Entry("Table 1", "other methods on MS COCO", f"{_LABELS}compare", _SEGMENTED, scores=True),
    "compare-seeds": Entry("Table 2", "other methods: seeds, labels", f"{_LABELS}compare", _LABELLED, "trained",
                           scores=True),
    "pseudo": Entry("Table 2", "from seeds to pseudo labels", f"{_LABELS}pseudo", _LABELLED, "trained"),
    "compare-voc": Entry("Table 3", "other methods on VOC val and test", f"{_LABELS}compare", _SEGMENTED, scores=True),
    "ablation": Entry("Table 4", "what each consistency brings", f"{_SEEDS}ablation", "4 trainings", rows=True),
    "gains": Entry("Table 4", "the same by kind of map, with intervals", "gains:gains", "4 trainings", rows=True),
    "chain": Entry("Table 4", "does the gain survive to the masks", "gains:chain", "2 trainings, segmenters"),
    "methods": Entry("Table 5", "other maps from the same classifier", f"{_SEEDS}methods", rows=True),
    "backbones": Entry("Table 6", "MCTformer, MCTformer + ACR and ACR", f"{_SEEDS}backbones", "3 trainings", rows=True),
    "augmentations": Entry("Table 7", "eight kinds of second view", f"{_SEEDS}augmentations", "8 trainings", rows=True),
    "distances": Entry("Table 8", "distance between two attentions", f"{_SEEDS}distances", "3 trainings", rows=True),
    "computation": Entry("Table 9", "training memory, maps per second", "computation:computation", NO_TRAINING, "none"),
    "per-class": Entry("Tables 10, 11", "IoU of each class, other methods too", f"{_LABELS}per_class", _SEGMENTED,
                       scores=True),
    "segmentation": Entry("Tables 10, 11", "IoU of each class", f"{_LABELS}segmentation", _SEGMENTED),
    "layers": Entry("Fig. 8", "first block whose gradients are fused (and plot)", f"{_SEEDS}layers"),
}
FIGURES: Mapping[str, Entry] = {
    "affinity": Entry("Figs. 1, 4, 12", "maps and affinity: baseline, SEAM*, ACR", f"{_FIGURES}affinity", "3 trainings",
                      "none"),
    "maps": Entry("Figs. 5, 10", "maps of each method, MCTformer included", f"{_FIGURES}maps", "2 trainings", "none"),
    "multi-class": Entry("Figs. 6, 11", "maps of several classes, a failure", f"{_FIGURES}multi_class", masks="none"),
    "examples": Entry("Figs. 7, 14", "predicted masks", f"{_FIGURES}examples", _SEGMENTED, "none"),
    "patch-order": Entry("Fig. 9", "patches of a flipped image", f"{_FIGURES}patch_order", NO_TRAINING, "none"),
    "source-pixels": Entry("Fig. 13", "what three pixels attend to", f"{_FIGURES}source_pixels", "3 trainings", "none"),
}
# fmt: on
NAMES: Mapping[str, Entry] = {**TABLES, **FIGURES}
_NOTE = (
    "trainings are those of one random seed (--random-seeds N: N times as many); the same training is done once for",
    "all tables in the same --out. masks: the images to score need them. Figs. 2 and 3 of the paper are diagrams.",
)


def listing() -> str:
    """One line for each table and figure."""

    def line(name: str, entry: Entry) -> str:
        masks = "" if entry.masks == "none" else "; masks"
        return f"  {name:14} {entry.where:14} {entry.title:49} {entry.needs}{masks}"

    tables, figures = ([line(*item) for item in group.items()] for group in (TABLES, FIGURES))
    return "\n".join(["tables", *tables, "figures", *figures, *_NOTE])
