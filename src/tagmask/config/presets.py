"""Named recipes: values to start from, by stage."""

from collections.abc import Mapping
from typing import Any

Preset = Mapping[str, Any]

SCENES: Preset = {
    "data": "scenes",
    "backbone": "tagmask_tiny",
    "pretrained": True,
    "optimizer": "adamw",
    "lr": 1e-3,
    "weight_decay": 0.02,
    "warmup": 50,
    "clip": 0.0,
    "batch": 32,
    "count": 4000,
    "steps": 380,
    "size": 64,
    "crop_scale": 0.8,
    "workers": 0,
    "val_every": 4.0,
    "alpha": 5.0,
    "beta": 5.0,
}
SCENE_MAPS: Preset = {"affinity_blocks": (0, 1)}
PAPER_VOC: Preset = {
    "data": "voc",
    "split": "train_aug",
    "backbone": "vit_base_r50_s16_384",
    "pretrained": True,
}
TRAIN_PRESETS: Mapping[str, Preset] = {
    "scenes": SCENES,
    "voc": PAPER_VOC,
    "voc-deit-s": {**PAPER_VOC, "backbone": "deit_small_patch16_224"},
    "coco": {**PAPER_VOC, "data": "coco"},
    "scenes-seam": {**SCENES, "beta": 0.0},  # SEAM*: activation consistency alone
    "voc-seam": {**PAPER_VOC, "beta": 0.0},
    "scenes-mct": {**SCENES, "model": "mct"},
    "voc-mct": {**PAPER_VOC, "model": "mct", "backbone": "deit_small_patch16_224"},
}
SEED_PRESETS: Mapping[str, Preset] = dict.fromkeys(("scenes", "scenes-seam", "scenes-mct"), SCENE_MAPS)

SCENE_PSEUDO: Preset = {
    "affinity_blocks": (0, 1),
    "affinity": {
        "backbone": "test_resnet",
        "optimizer": "adamw",
        "lr": 2e-3,
        "head_lr": 1.0,
        "weight_decay": 0.02,
        "warmup": 10,
        "steps": 150,
        "size": 96,
        "jitter": 0.1,
    },
}
VOC_PSEUDO: Preset = {"affinity": {"pretrained": True}}
PSEUDO_PRESETS: Mapping[str, Preset] = {"scenes": SCENE_PSEUDO, "voc": VOC_PSEUDO, "coco": VOC_PSEUDO}

SCENE_SEGMENTER: Preset = {  # two minutes on one core
    "backbone": "test_resnet",
    "optimizer": "adamw",
    "lr": 5e-3,
    "weight_decay": 0.01,
    "head_lr": 1.0,
    "warmup": 20,
    "crop": 65,
    "scales": (0.75, 1.25),
    "batch": 16,
    "steps": 500,
    "workers": 1,
    "val_every": 1.0,
}
VOC_SEGMENTER: Preset = {  # frozen statistics: the same result on one GPU and on eight
    "data": "voc",
    "split": "train_aug",
    "backbone": "resnet101",
    "pretrained": True,
    "frozen_norm": True,
    "lr": 2e-4,
}
SEGMENT_PRESETS: Mapping[str, Preset] = {
    "scenes": SCENE_SEGMENTER,
    "voc": VOC_SEGMENTER,
    "coco": {**VOC_SEGMENTER, "data": "coco", "steps": 100_000},
}
SCENE_MASKS: Preset = {"scales": (1.0,)}
PREDICT_PRESETS: Mapping[str, Preset] = {"scenes": SCENE_MASKS}
