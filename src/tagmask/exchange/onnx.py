"""The segmentation network as an ONNX file, checked with onnxruntime before it gets its name.

input   image          (N, 3, H, W) float32 in [0, 1], RGB, of any size
output  probabilities  (N, K, H, W) float32, background first

Normalisation, upsampling and softmax are inside. The names of the classes are in the file's
metadata under ``classes``, a JSON list without the background. Further entries, all JSON:

input      what an image must be: name, order of axes and colours, range; normalisation is inside
size       long side in pixels at which a head sees an image; null for DeepLabV2, which sees it as
           it is. An image that is reduced to it with an antialiasing filter gives masks closer to
           tagmask's own
output     what comes out: name, order of axes, and which channel is the background
tags       how to use tags that are known: a sentence
mean, std  of the colours, for those who build on the network; the file itself needs none
use        the settings of masks that the run decided, where they are not the defaults: what is done
           around the network, such as scales and the CRF, is not in the file
"""

import copy
import importlib
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagmask.errors import TagmaskError
from tagmask.files import replacing
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import Segmenter

_INPUT = {
    "name": "image",
    "axes": "images, colours, height, width",
    "colours": "RGB",
    "range": [0, 1],
    "normalised": "inside",
}
_OUTPUT = {
    "name": "probabilities",
    "axes": "images, background and classes, height, width",
    "background": 0,
}
_TAGS = (
    "A tag names a class that is in the image. If the tags are known, set the probabilities of all "
    "other classes to 0, keep the background, and take the largest in each pixel."
)
TOLERANCE = 1e-4  # of a probability
_OPSET = 17

# heights and widths for the check: odd, even, and not the traced one
_SIZES = ((97, 129), (80, 66))


class WholeNetwork(nn.Module):
    """A network from an image to probabilities.

    A head on tokens sees every image as a square of its size in whole patches.
    """

    def __init__(self, model: Segmenter) -> None:
        super().__init__()
        self.model = model
        self.side = 0
        if isinstance(model, HeadSegmenter):
            self.model = copy.deepcopy(model)
            patches = max(1, round(model.size / model.stride))
            self.side = patches * model.stride
            # ONNX cannot resample positions
            self.model.classifier.vit.set_input_size((self.side, self.side))

    def forward(self, image: Tensor) -> Tensor:
        """Return the probabilities (N, K, H, W) of images (N, 3, H, W) in [0, 1]."""
        size = (image.shape[2], image.shape[3])
        if isinstance(self.model, HeadSegmenter):
            square = _resize(image, (self.side, self.side))  # (N, 3, side, side)
            cells = self.model(self.model.normalize(square))  # (N, K, h, w)
            return _resize(cells, size).softmax(1)
        cells = self.model(self.model.normalize(image))  # (N, K, h, w)
        return self.model.upsample(cells, size).softmax(1)


def _resize(maps: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(maps, size, mode="bilinear", align_corners=False)


def write_onnx(model: Segmenter, path: Path) -> None:
    """Write a network; the file appears only if it computes the same as the network.

    Args:
        model: the network; it is moved to the CPU and set to evaluation.
        path: the ONNX file.

    Raises:
        TagmaskError: a package is missing, or the file computes something else.
    """
    onnx = _package("onnx")
    runtime = _package("onnxruntime")
    network = WholeNetwork(model.cpu().eval()).eval()
    with replacing(path) as partial:
        _export(network, partial)
        file = onnx.load(partial)
        onnx.checker.check_model(file)
        onnx.helper.set_model_props(file, _properties(model))
        onnx.save(file, partial)
        difference = largest_difference(network, runtime, partial)
        if not difference <= TOLERANCE:
            raise TagmaskError(
                f"as ONNX, {model.backbone} differs from the network by {difference:.2g}, more "
                f"than {TOLERANCE}; it cannot be exported: train another --backbone, for example "
                "resnet50."
            )


def _properties(model: Segmenter) -> dict[str, str]:
    """Return the metadata of the file."""
    properties = {
        "classes": json.dumps(model.classes),
        "made_by": "tagmask",
        "input": json.dumps(_INPUT),
        "output": json.dumps(_OUTPUT),
        "tags": json.dumps(_TAGS),
        "mean": json.dumps(_rounded(model.mean)),
        "std": json.dumps(_rounded(model.std)),
        "use": json.dumps(model.use),
    }
    size = model.size if isinstance(model, HeadSegmenter) else None
    properties["size"] = json.dumps(size)
    return properties


def _rounded(values: Tensor) -> list[float]:
    """Return numbers without the digits that single precision adds to them."""
    return [round(value, 6) for value in values.flatten().tolist()]


def largest_difference(
    network: WholeNetwork,
    runtime: Any,
    path: Path,
) -> float:
    """Compare the probabilities of network and file on random images of several sizes.

    Args:
        network: the network that was exported.
        runtime: the module onnxruntime.
        path: the ONNX file.

    Returns:
        The largest absolute difference, 0 … 1; infinity if the shapes differ, or for no numbers.
    """
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    random = torch.Generator().manual_seed(0)
    largest = 0.0
    for height, width in _SIZES:
        image = torch.rand(2, 3, height, width, generator=random)
        with torch.inference_mode():
            expected = network(image)  # (2, K, H, W)
        (actual,) = session.run(None, {"image": image.numpy()})
        if actual.shape != tuple(expected.shape):
            return float("inf")
        difference = float((torch.from_numpy(actual) - expected).abs().max())
        if not difference < float("inf"):
            return float("inf")  # not a number, somewhere
        largest = max(largest, difference)
    return largest


def _export(network: WholeNetwork, path: Path) -> None:
    """Write the file by tracing: torch's newer exporter needs another package without advantage."""
    free = {0: "images", 2: "height", 3: "width"}
    with warnings.catch_warnings(), torch.inference_mode():
        # the warnings are about its age, and about shapes that are checked afterwards
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        torch.onnx.export(
            network,
            (torch.rand(1, 3, 65, 73),),
            str(path),
            input_names=["image"],
            output_names=["probabilities"],
            dynamic_axes={"image": free, "probabilities": free},
            opset_version=_OPSET,
            dynamo=False,
        )


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise TagmaskError(
            f"--onnx needs the package {name}; install it with: pip install 'tagmask[onnx]'"
        ) from None
