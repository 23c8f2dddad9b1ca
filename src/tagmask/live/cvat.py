"""An auto-annotation function for CVAT: https://docs.cvat.ai/docs/api_sdk/sdk/auto-annotation

cvat-cli task auto-annotate ID --function-module tagmask.live.cvat -p model=str:run/5_segmenter

CVAT tells the name of a frame, not its tags; ``-p tags=str:FILE`` names a file with the tags of the frames.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tagmask.data.report import Mistakes
from tagmask.data.table import read_table
from tagmask.export.contours import outlines
from tagmask.export.items import regions
from tagmask.models.device import on_device
from tagmask.models.kinds import load_segmenter
from tagmask.stages.predict import predict


class Function:
    """What cvat-cli asks for: the labels, and the masks of a frame."""

    def __init__(self, model: Any, tags: dict[str, Sequence[str]]) -> None:
        import cvat_sdk.auto_annotation as cvataa

        self._model, self._tags = model, tags
        labels = [
            cvataa.label_spec(name, number, type="mask")
            for number, name in enumerate(model.classes)
        ]
        self.spec = cvataa.DetectionFunctionSpec(labels=labels)

    def detect(self, context: Any, image: Any) -> list[Any]:
        """A mask, or polygons if the user wants them, for each class in a frame."""
        import cvat_sdk.auto_annotation as cvataa
        from cvat_sdk.masks import encode_mask

        known = [
            tag for tag in self._tags.get(context.frame_name, ()) if tag in self._model.classes
        ]
        mask = predict(self._model, np.array(image.convert("RGB")), known or None)
        if getattr(context, "conv_mask_to_poly", False):
            return [
                cvataa.polygon(label - 1, polygon)
                for label, region in regions(mask, pieces=False)
                for polygon in outlines(region)
            ]
        return [
            cvataa.mask(label - 1, encode_mask(region))
            for label, region in regions(mask, pieces=False)
        ]


def create(model: str, tags: str = "") -> Function:
    """The function for the segmenter in the folder ``model``; ``tags`` is a file as for ``--tags``."""
    mistakes = Mistakes(Path(tags))
    rows = read_table(Path(tags), mistakes).rows if tags else []
    mistakes.raise_if_any()
    return Function(on_device(load_segmenter(Path(model))), {row.file: row.tags for row in rows})
