"""The paper's own numbers (docs/method.md §6): other data and other weights than a run of ours.

PASCAL VOC 2012, ViT-hybrid-B/384 unless said otherwise. Seeds and pseudo labels are scored on `train` at the best
threshold for the masks, in per cent. A number that the paper does not state is not here, and its cell stays empty.
"""

from collections.abc import Mapping

ABOUT = "paper: other data (PASCAL VOC 2012), other weights, other budget; not to be compared number by number."

Pair = tuple[float | None, float | None]  # mIoU of seeds without, with affinity

ABLATION: Mapping[str, Pair] = {
    "none": (51.1, 57.7),
    "act": (54.8, 63.5),
    "aff": (55.4, 64.9),
    "both": (59.4, 67.3),
}
METHODS: Mapping[str, Pair] = {
    "cam": (44.0, None),
    "ts_cam": (40.1, None),
    "grad_cam": (50.5, None),
    "generic": (52.5, 59.6),
    "acr": ABLATION["both"],
}
BACKBONES: Mapping[str, Pair] = {  # DeiT-S
    "mct": (58.2, 61.7),
    "mct+acr": (60.4, 62.4),
    "acr": (56.8, 63.4),
}
VIEWS: Mapping[str, float] = {  # with affinity
    "hflip": 67.3,
    "hflip+hide": 65.8,
    "hflip+gray": 63.8,
    "hflip+vflip": 63.6,
    "hflip+resize0.5": 61.6,
    "rotate": 61.1,
    "resize0.5": 59.2,
    "none": 57.7,
}
DISTANCES: Mapping[str, float] = {"l1": 67.3, "l2": 62.5, "smooth_l1": 62.5}  # with affinity
BEST_LAYERS: Mapping[int, Pair] = {2: ABLATION["both"]}  # the last two blocks; the others are only in a plot
SEEDS = 67.3
PSEUDO = 70.8
SEGMENTATION: Mapping[str, float] = {"VOC val": 71.2, "VOC test": 70.9, "COCO val": 45.0}
TRAINING_MEGABYTES: Mapping[str, float] = {"deit_small_patch16_224": 1580.0, "vit_base_r50_s16_384": 5260.0}
MAPS_PER_SECOND: Mapping[str, float] = {"deit_small_patch16_224": 3.61, "vit_base_r50_s16_384": 2.33}
MCT_MAPS_PER_SECOND = 7.10  # DeiT-S
MACHINE = "batch 1 on an RTX 2080 Ti"
