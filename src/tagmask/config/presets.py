"""Named recipes: ``PRESETS[name][section]`` holds values to start from, "run" those of the data.

The presets `*-paper` do what the ACR paper says and nothing else; where its text is silent, what
its authors' scripts do, unless docs/reference/paper-settings.md lists it as different; where both
are silent, what PSA and DeepLab do. `voc`, `voc-deit-s`, `voc-mct` and `coco` are our advice. That
page compares them setting by setting, and a test compares it with this file.
"""

import difflib
from collections.abc import Mapping
from typing import Any

from tagmask.errors import TagmaskError

Section = Mapping[str, Any]
Preset = Mapping[str, Section]


def _with(base: Preset, **changes: Section) -> Preset:
    """Return a recipe with values of its sections changed."""
    return {**base, **{name: {**base.get(name, {}), **values} for name, values in changes.items()}}


_SCENES: Preset = {
    "run": {"data": "scenes", "count": 4000},
    "train": {
        "backbone": "tagmask_tiny",
        "pretrained": True,
        "size": 64,
        "crop_scale": 0.8,
        "alpha": 5.0,
        "beta": 5.0,
        "optimizer": "adamw",
        "lr": 1e-3,
        "weight_decay": 0.02,
        "warmup": 50,
        "batch": 32,
        "steps": 380,
        "val_every": 4.0,
    },
    "seeds": {"affinity_blocks": (0, 1)},  # those whose affinity is object-like in this backbone
    "pseudo": {
        "affinity_blocks": (0, 1),
        "affinity": {
            "backbone": "test_resnet",
            "size": 96,
            "jitter": 0.1,
            "optimizer": "adamw",
            "lr": 2e-3,
            "head_lr": 1.0,
            "weight_decay": 0.02,
            "warmup": 10,
            "steps": 150,
        },
    },
    "segment": {  # a minute on one core
        "backbone": "test_resnet",
        "size": 65,
        "scales": (0.75, 1.25),
        "workers": 1,
        "optimizer": "adamw",
        "lr": 5e-3,
        "head_lr": 1.0,
        "weight_decay": 0.01,
        "warmup": 20,
        "batch": 16,
        "steps": 500,
    },
    "predict": {"scales": (1.0,)},
}
_VOC: Preset = {
    "run": {"data": "voc", "split": "train_aug"},
    "train": {"backbone": "vit_base_r50_s16_384", "pretrained": True},
    "pseudo": {"affinity": {"pretrained": True}},
    # frozen statistics: the same result on one GPU and on eight
    "segment": {"backbone": "resnet101", "pretrained": True, "freeze_norm": True, "lr": 2e-4},
}
# a minute or two on two cores: every photo is seen once, and its tokens are kept
_OWN_PHOTOS: Preset = {
    "run": {"data": "folder"},
    "train": {
        "backbone": "vit_small_patch14_reg4_dinov2",
        "pretrained": True,
        "freeze": 6,
        "fixed_views": True,
        "size": 392,
        "head_first": True,
        "objects": True,
        "train_from": 1000,
        "earn": True,
        "optimizer": "adamw",
        "lr": 5e-5,
        "head_lr": 2.0,
        "weight_decay": 0.02,
        "warmup": 10,
        "batch": 8,
        "epochs": 2.0,
        "val_every": 0.5,
    },
    # for maps without objects: better than ACR's on photos, docs/tutorials/own-photos.md
    "seeds": {"method": "weighted", "affinity_steps": 2, "affinity_blocks": (6, 11)},
    "pseudo": {"method": "crf", "rule": "otsu", "crf": False, "unsure": True},
    "segment": {
        "net": "head",
        "size": 392,
        "lr": 1e-3,
        "weight_decay": 0.01,
        "steps": 300,
        "cells": 2048,
    },
    "predict": {"scales": (1.0,), "flip": False, "use_tags": True, "crf_size": 256},
}
_VOC_PAPER: Preset = {
    "run": {"data": "voc", "split": "train_aug"},
    "train": {
        "backbone": "vit_base_r50_s16_384",
        "pretrained": True,
        "size": 384,
        "long_side": (345, 438),
        "optimizer": "sgd",
        "lr": 0.01,
        "weight_decay": 5e-4,
        "momentum": 0.9,
        "power": 0.9,
        "batch": 4,
        "epochs": 15.0,
        "alpha": 100.0,
        "beta": 100.0,
        "alpha_absolute": True,
        "view": "hflip",
        "distance": "l1",
        "val_fraction": 0.0,
    },
    "seeds": {
        "layers": 2,
        "transpose": True,
        "size": 384,
        "shape": "square",
        "scales": (1.0,),
        "flip": True,
    },
    "pseudo": {
        # α, β and the background are those of run_psa.sh in the history of the authors'
        # repository, commit 3accf1c
        "method": "walk",
        "maps": "refined",
        "alpha_low": 4.0,
        "alpha_high": 32.0,
        "steps": 64,
        "beta": 36.0,
        "background": 0.55,
        "stretch": False,
        "crf": False,
        "affinity": {
            # theirs is a ResNet-38, of which there are no published weights in timm
            "backbone": "resnet50",
            "pretrained": True,
            "size": 448,
            "radius": 5.0,
            "lr": 0.01,
            "head_lr": 10.0,
            "batch": 8,
            "epochs": 5.0,
        },
    },
    "segment": {
        "backbone": "resnet101",
        "pretrained": True,
        "freeze_norm": True,
        "multi_scale": True,
        "size": 321,
        "scales": (0.5, 1.5),
        "lr": 2.5e-4,
        "head_lr": 10.0,
        "batch": 10,
        "steps": 20_000,
        "val_fraction": 0.0,
    },
    "predict": {"scales": (0.5, 0.75, 1.0, 1.25, 1.5), "flip": True, "crf": True},
    "paper": {"mct_recipe": True},
}
# the paper's second backbone, in the place of the first
DEIT_S: Section = {"backbone": "deit_small_patch16_224", "size": 224, "long_side": (201, 256)}
DEIT_S_MAPS: Section = {"size": 224}
MCT_RECIPE: Section = {  # MCTformer's own training
    "optimizer": "adamw",
    "lr": 5e-4 * 64 / 512,
    "weight_decay": 0.05,
    "schedule": "cosine",
    "warmup": 827,  # five epochs of VOC; tables count those of what they train on
    "epochs": 60.0,
    "batch": 64,
    "crop_scale": 0.08,
    "drop_path": 0.1,
    "augment": "rand",
}
# of the epochs above
MCT_WARMUP_EPOCHS = 5
# MCTformer alone sees every image once; with ACR it sees the mirror image too
MCT_ALONE: Section = {"alpha": 0.0, "beta": 0.0, "view": "none"}
# what a strict preset of ACR sets and MCTformer does not: None and False are the program's own
MCT_INSTEAD: Section = {"long_side": None, "mct_read": "before_norm"}
MCT_MAPS: Section = {"layers": 3, "transpose": False, "shape": "own", "size": None}
PRESETS: Mapping[str, Preset] = {
    "scenes": _SCENES,
    "voc": _VOC,
    "voc-deit-s": _with(_VOC, train={"backbone": "deit_small_patch16_224"}),
    "coco": _with(_VOC, run={"data": "coco"}, segment={"steps": 100_000}),
    "scenes-seam": _with(_SCENES, train={"beta": 0.0}),  # SEAM*: activation consistency alone
    "voc-seam": _with(_VOC, train={"beta": 0.0}),
    "scenes-mct": _with(_SCENES, train={"kind": "mct"}),
    "voc-mct": _with(_VOC, train={"kind": "mct", "backbone": "deit_small_patch16_224"}),
    "voc-paper": _VOC_PAPER,
    "voc-deit-s-paper": _with(_VOC_PAPER, train=DEIT_S, seeds=DEIT_S_MAPS),
    "coco-paper": _with(_VOC_PAPER, run={"data": "coco"}, segment={"steps": 100_000}),
    "voc-paper-psa": {  # the pseudo labels as PSA published them, whose background walks along
        **_VOC_PAPER,
        "pseudo": {
            "method": "walk",
            "maps": "refined",
            "alpha_low": 4.0,
            "alpha_high": 32.0,
            "steps": 256,
            "beta": 8.0,
            "background_power": 16.0,
            "crf": False,
            "affinity": {**_VOC_PAPER["pseudo"]["affinity"], "lr": 0.1, "epochs": 8.0},
        },
    },
    "voc-mct-paper": {
        **_VOC_PAPER,
        "train": {
            "kind": "mct",
            "backbone": "deit_small_patch16_224",
            "pretrained": True,
            "size": 224,
            "mct_read": "before_norm",
            "alpha_absolute": True,
            "val_fraction": 0.0,
            **MCT_ALONE,
            **MCT_RECIPE,
        },
        "seeds": {"layers": 3, "shape": "own", "scales": (1.0,), "flip": True},
    },
    "own-photos": _OWN_PHOTOS,
    "own-photos-large": _with(_OWN_PHOTOS, train={"backbone": "vit_base_patch14_reg4_dinov2"}),
    "trial": _with(
        _OWN_PHOTOS,
        train={
            "backbone": "tagmask_tiny",
            "freeze": 2,
            "size": 64,
            "object_blocks": (1, 3),
            "object_size": 64,
        },
        seeds={"affinity_blocks": (2, 3)},
        segment={"head_blocks": (1, 3), "size": 64, "steps": 50},
    ),
}


def find_preset(name: str) -> Preset:
    """Return the sections of a preset.

    Raises:
        TagmaskError: There is no such preset.
    """
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(PRESETS)}."
        raise TagmaskError(
            f"there is no preset {name!r}; {remedy} `tagmask presets` explains them."
        )
    return PRESETS[name]


def preset_of(name: str, section: str) -> dict[str, Any]:
    """Return what a stage starts from: its section of a preset, and the data settings.

    Args:
        name: Of the preset.
        section: Of the stage in config.toml.

    Raises:
        TagmaskError: There is no such preset.
    """
    preset = find_preset(name)
    return {**preset["run"], **preset.get(section, {})}
