"""Let torchvision import beside a torch built without its compiled operators.

A CPU-only torch beside the ordinary torchvision fails to import torchvision with "operator
torchvision::nms does not exist", and timm imports torchvision. Declaring the two missing operator
schemas fixes exactly that case, and nothing is done if torchvision imports by itself.
``tagmask.models`` imports this module before anything else; take torchvision's transforms from
here.
"""

import sys

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_library: torch.library.Library | None = None  # the declarations live as long as this object


def _import_torchvision() -> None:
    """Import torchvision, declaring its operators first if that is what it lacks."""
    global _library
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        half_imported = [name for name in sys.modules if name.split(".")[0] == "torchvision"]
        for name in half_imported:
            del sys.modules[name]
        _library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            _library.define(schema)
        import torchvision  # noqa: F401


_import_torchvision()

from torchvision.transforms import v2  # noqa: E402

__all__ = ["v2"]
