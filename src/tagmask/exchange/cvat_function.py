r"""Offer a segmenter to CVAT as an auto-annotation function.

The interface: https://docs.cvat.ai/docs/api_sdk/sdk/auto-annotation

cvat-cli task auto-annotate ID --function-module tagmask.exchange.cvat_function \
    -p model=str:run/5_segmenter

CVAT tells the name of a frame, not its tags; ``-p tags=str:FILE`` names a file with the tags of the
frames.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tagmask.data.report import Mistakes
from tagmask.data.table import read_table
from tagmask.exchange.contours import outlines
from tagmask.exchange.items import regions
from tagmask.models.device import on_device
from tagmask.models.kinds import load_segmenter
from tagmask.stages.predict import predict


class Function:
    """The object that cvat-cli asks for: the labels, and the masks of a frame."""

    def __init__(self, model: Any, tags: dict[str, Sequence[str]]) -> None:
        """Describe the labels to CVAT.

        Args:
            model: a segmentation network on its device.
            tags: the tags of frames, by file name; frames without are predicted without tags.
        """
        import cvat_sdk.auto_annotation as cvataa

        self._model = model
        self._tags = tags
        labels = []
        for number, name in enumerate(model.classes):
            labels.append(cvataa.label_spec(name, number, type="mask"))
        self.spec = cvataa.DetectionFunctionSpec(labels=labels)

    def detect(self, context: Any, image: Any) -> list[Any]:
        """Return a mask, or polygons if the user wants them, for each class in a frame.

        Args:
            context: CVAT's DetectionFunctionContext, which names the frame.
            image: the frame as a Pillow image.
        """
        import cvat_sdk.auto_annotation as cvataa
        from cvat_sdk.masks import encode_mask

        frame_tags = self._tags.get(context.frame_name, ())
        known = [tag for tag in frame_tags if tag in self._model.classes]
        pixels = np.array(image.convert("RGB"))  # (H, W, 3)
        mask = predict(self._model, pixels, known or None)
        wants_polygons = getattr(context, "conv_mask_to_poly", False)
        shapes = []
        for label, region in regions(mask, pieces=False):
            number = label - 1
            if wants_polygons:
                shapes += [cvataa.polygon(number, polygon) for polygon in outlines(region)]
            else:
                shapes.append(cvataa.mask(number, encode_mask(region)))
        return shapes


def create(model: str, tags: str = "") -> Function:
    """Return the function for a segmentation network; cvat-cli calls this with its ``-p`` options.

    Args:
        model: the network's folder.
        tags: a file with the tags of the frames, as for ``--tags``; without, no tags are used.

    Raises:
        TagmaskError: the file with the tags has mistakes, or the folder holds no such network.
    """
    mistakes = Mistakes(Path(tags))
    rows = read_table(Path(tags), mistakes).rows if tags else []
    mistakes.raise_if_any()
    network = on_device(load_segmenter(Path(model)))
    return Function(network, {row.file: row.tags for row in rows})
