"""`tagmask presets`: what each preset is for."""

from tagmask.config.presets import PRESETS

ABOUT = {
    "own-photos": "your own photos, ten to thousands, CPU or GPU: minutes; what most people want",
    "own-photos-large": "the same with a larger backbone: slower, not measured",
    "trial": "own-photos with a tiny network: the same steps in seconds, no download, bad masks",
    "scenes": "the built-in drawn pictures: trials and tests, minutes on a CPU, no download",
    "scenes-seam": "scenes with activation consistency alone (SEAM*)",
    "scenes-mct": "scenes with MCTformer and ACR",
    "voc": "PASCAL VOC as we recommend it: ViT-hybrid-B/384, a GPU",
    "voc-deit-s": "the same with the paper's second backbone, DeiT-S",
    "voc-seam": "the same with activation consistency alone (SEAM*)",
    "voc-mct": "MCTformer and ACR on VOC",
    "voc-paper": "PASCAL VOC as the paper says, or else its authors' scripts",
    "voc-paper-psa": "the same with pseudo labels as PSA was published",
    "voc-deit-s-paper": "voc-paper with the second backbone, DeiT-S",
    "voc-mct-paper": "MCTformer, classifier and maps by its own recipe",
    "coco": "MS COCO as we recommend it",
    "coco-paper": "MS COCO in the same way",
}


def listing() -> str:
    """Return a line for each preset, and how presets are used."""
    width = max(len(name) for name in PRESETS)
    known = [f"  {name:{width}}  {ABOUT[name]}" for name in ABOUT if name in PRESETS]
    return "\n".join(
        [
            "A preset is a named set of settings to start from; flags change single ones.",
            "",
            *known,
            "",
            "  tagmask run --preset own-photos --images photos --tags tags.csv --out run",
            "",
            "docs/reference/paper-settings.md compares the presets of the paper, one by one.",
        ]
    )
