"""Every table and figure by name, where the paper has it, and what it needs.

This module imports nothing heavy, for the command line.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

NO_TRAINING = "no training"
EVERYTHING = "all"
# tables and figures that compare trainings with and without the consistency losses
CONSISTENCY = (
    *("ablation", "gains", "chain", "open-ends", "backbones", "augmentations", "distances"),
    *("affinity", "source-pixels"),
)


@dataclass(frozen=True)
class Entry:
    """A table or figure of the paper, counted in the order of paper and supplement."""

    where: str
    title: str
    # module of this package and its function
    maker: str
    needs: str = "1 training"
    # which images must have masks
    masks: Literal["scored", "trained", "none"] = "scored"
    # --rows chooses among its rows
    rows: bool = False
    # --scores adds the row of a finished run
    scores: bool = False


_LABELLED = "1 training, AffinityNet"
_SEGMENTED = "1 training, AffinityNet, a segmenter"
TABLES: Mapping[str, Entry] = {
    EVERYTHING: Entry(
        where="all",
        title="every table and figure, and a page of all numbers",
        maker="everything:everything",
        needs="all trainings",
        masks="none",
    ),
    "compare-coco": Entry(
        where="Table 1",
        title="other methods on MS COCO",
        maker="label_tables:compare",
        needs=_SEGMENTED,
        scores=True,
    ),
    "compare-seeds": Entry(
        where="Table 2",
        title="other methods: seeds, labels",
        maker="label_tables:compare",
        needs=_LABELLED,
        masks="trained",
        scores=True,
    ),
    "pseudo": Entry(
        where="Table 2",
        title="from seeds to pseudo labels",
        maker="label_tables:pseudo",
        needs=_LABELLED,
        masks="trained",
    ),
    "compare-voc": Entry(
        where="Table 3",
        title="other methods on VOC val and test",
        maker="label_tables:compare",
        needs=_SEGMENTED,
        scores=True,
    ),
    "ablation": Entry(
        where="Table 4",
        title="what each consistency brings",
        maker="seed_tables:ablation",
        needs="4 trainings",
        rows=True,
    ),
    "gains": Entry(
        where="ours",
        title="the same by kind of map, with intervals",
        maker="gains:gains",
        needs="4 trainings",
        rows=True,
    ),
    "chain": Entry(
        where="ours",
        title="does the gain survive to the masks",
        maker="gains:chain",
        needs="2 trainings, segmenters",
    ),
    "open-ends": Entry(
        where="ours",
        title="over-activation and competition, to the masks",
        maker="open_ends:open_ends",
        needs="3 trainings, segmenters",
        rows=True,
    ),
    "methods": Entry(
        where="Table 5",
        title="other maps from the same classifier",
        maker="seed_tables:methods",
        rows=True,
    ),
    "backbones": Entry(
        where="Table 6",
        title="MCTformer, MCTformer + ACR and ACR",
        maker="seed_tables:backbones",
        needs="3 trainings",
        rows=True,
    ),
    "augmentations": Entry(
        where="Table 7",
        title="eight kinds of second view",
        maker="seed_tables:augmentations",
        needs="8 trainings",
        rows=True,
    ),
    "distances": Entry(
        where="Table 8",
        title="distance between two attentions",
        maker="seed_tables:distances",
        needs="3 trainings",
        rows=True,
    ),
    "computation": Entry(
        where="Table 9",
        title="training memory, maps per second",
        maker="computation:computation",
        needs=NO_TRAINING,
        masks="none",
    ),
    "per-class": Entry(
        where="Tables 10, 11",
        title="IoU of each class, other methods too",
        maker="label_tables:per_class",
        needs=_SEGMENTED,
        scores=True,
    ),
    "segmentation": Entry(
        where="Tables 10, 11",
        title="IoU of each class",
        maker="label_tables:segmentation",
        needs=_SEGMENTED,
    ),
    "layers": Entry(
        where="Fig. 8",
        title="first block whose gradients are fused (and plot)",
        maker="seed_tables:layers",
    ),
}
FIGURES: Mapping[str, Entry] = {
    "affinity": Entry(
        where="Figs. 1, 4, 12",
        title="maps and affinity: baseline, SEAM*, ACR",
        maker="figures:affinity",
        needs="3 trainings",
        masks="none",
    ),
    "maps": Entry(
        where="Figs. 5, 10",
        title="maps of each method, MCTformer included",
        maker="figures:maps",
        needs="2 trainings",
        masks="none",
    ),
    "multi-class": Entry(
        where="Figs. 6, 11",
        title="maps of several classes, a failure",
        maker="figures:multi_class",
        masks="none",
    ),
    "examples": Entry(
        where="Figs. 7, 14",
        title="predicted masks",
        maker="figures:examples",
        needs=_SEGMENTED,
        masks="none",
    ),
    "patch-order": Entry(
        where="Fig. 9",
        title="patches of a flipped image",
        maker="figures:patch_order",
        needs=NO_TRAINING,
        masks="none",
    ),
    "source-pixels": Entry(
        where="Fig. 13",
        title="what three pixels attend to",
        maker="figures:source_pixels",
        needs="3 trainings",
        masks="none",
    ),
}
NAMES: Mapping[str, Entry] = {**TABLES, **FIGURES}
_NOTE = (
    "trainings are those of one random seed (--random-seeds N: N times as many); "
    "the same training is done once for",
    "all tables in the same --out. masks: the images to score need them. "
    "Figs. 2 and 3 of the paper are diagrams.",
)


def listing() -> str:
    """Return one line for each table and figure, as `tagmask paper --list` prints them."""
    lines = ["tables"]
    lines += [_line(name, entry) for name, entry in TABLES.items()]
    lines.append("figures")
    lines += [_line(name, entry) for name, entry in FIGURES.items()]
    return "\n".join([*lines, *_NOTE])


def _line(name: str, entry: Entry) -> str:
    masks = "" if entry.masks == "none" else "; masks"
    return f"  {name:14} {entry.where:14} {entry.title:49} {entry.needs}{masks}"
