"""The table of thresholds is the mean over trainings of what `tagmask paper` has scored."""

import json
from pathlib import Path
from typing import Any

from tests.reproduction.small import script

THRESHOLDS = script("thresholds")


def write(folder: Path, training: str, maps: dict[str, Any], mious: dict[str, float]) -> None:
    """Scores of one training: a background of IoU 1, a cat of the IoU given, a dog that does not occur."""
    scores = {}
    for rule, iou in mious.items():
        scores[rule] = {"threshold": iou / 2, "iou": {"background": 1.0, "cat": iou, "dog": None}}
    result = {kind: {"thresholds": scores} for kind in ("plain", "refined")}
    place = folder / "runs" / training / "maps-0"
    place.mkdir(parents=True)
    note = {"settings": {"maps": maps}, "result": result}
    (place / "scored.json").write_text(json.dumps(note))


def test_means_over_the_trainings(tmp_path: Path) -> None:
    maps = {"method": "acr", "affinity_steps": 2}
    write(tmp_path, "a", maps, {"oracle": 0.6, "otsu": 0.4, "cross_entropy": 0.5})
    write(tmp_path, "b", maps, {"oracle": 0.8, "otsu": 0.2, "cross_entropy": 0.5})
    refined, plain = THRESHOLDS.table("photos", tmp_path, [])
    assert (refined["maps"], plain["maps"]) == ("acr, affinity, 2 steps", "acr, without affinity")
    assert refined["trainings"] == 2
    # (1 + 0.6) / 2 and (1 + 0.8) / 2
    assert refined["oracle mIoU"] == 85.0
    assert refined["otsu mIoU"] == 65.0
    assert refined["oracle threshold"] == 0.35
    assert THRESHOLDS.table("photos", tmp_path, ["cat"])[0]["cross_entropy mIoU"] == 75.0
