"""Wide ResNet-38 (Wu, Shen & van den Hengel 2016, model A1) at output stride 8, the backbone of PSA.

Its modules carry the names of PSA's published checkpoints, so that ``res38_cls.pth`` (a VOC tag classifier) and
``ilsvrc-cls_rna-a1_cls1000_ep-0001`` as converted there load by name. The names and shapes follow PSA's public
network definition; the checkpoint files themselves were not at hand, so loading one has not been tried.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class _Block(nn.Module):
    """Pre-activation residual block; the shortcut is a convolution of the activated input where shapes change."""

    bn_branch2a: nn.BatchNorm2d

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and the activated input on which PSA looks."""
        active = F.relu(self.bn_branch2a(features))
        shortcut = getattr(self, "conv_branch1", None)
        return (features if shortcut is None else shortcut(active)) + self.branch(active), active

    def branch(self, active: Tensor) -> Tensor:
        raise NotImplementedError


class Basic(_Block):
    """Two 3×3 convolutions of dilations ``first`` and ``dilation``."""

    def __init__(self, inner: int, middle: int, outer: int, stride: int = 1, first: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.bn_branch2a = nn.BatchNorm2d(inner)
        self.conv_branch2a = nn.Conv2d(inner, middle, 3, stride, padding=first, dilation=first, bias=False)
        self.bn_branch2b1 = nn.BatchNorm2d(middle)
        self.conv_branch2b1 = nn.Conv2d(middle, outer, 3, padding=dilation, dilation=dilation, bias=False)
        if inner != outer or stride != 1:
            self.conv_branch1 = nn.Conv2d(inner, outer, 1, stride, bias=False)

    def branch(self, active: Tensor) -> Tensor:
        inside: Tensor = F.relu(self.bn_branch2b1(self.conv_branch2a(active)))
        result: Tensor = self.conv_branch2b1(inside)
        return result


class Bottleneck(_Block):
    """1×1 to a quarter, 3×3 to half, 1×1 to the full width, with whole channels dropped in training."""

    def __init__(self, inner: int, outer: int, dilation: int, dropout: float) -> None:
        super().__init__()
        quarter, half = outer // 4, outer // 2
        self.dropout = dropout
        self.bn_branch2a = nn.BatchNorm2d(inner)
        self.conv_branch2a = nn.Conv2d(inner, quarter, 1, bias=False)
        self.bn_branch2b1 = nn.BatchNorm2d(quarter)
        self.conv_branch2b1 = nn.Conv2d(quarter, half, 3, padding=dilation, dilation=dilation, bias=False)
        self.bn_branch2b2 = nn.BatchNorm2d(half)
        self.conv_branch2b2 = nn.Conv2d(half, outer, 1, bias=False)
        self.conv_branch1 = nn.Conv2d(inner, outer, 1, bias=False)

    def branch(self, active: Tensor) -> Tensor:
        inside = self._drop(F.relu(self.bn_branch2b1(self.conv_branch2a(active))))
        inside = self._drop(F.relu(self.bn_branch2b2(self.conv_branch2b1(inside))))
        result: Tensor = self.conv_branch2b2(inside)
        return result

    def _drop(self, features: Tensor) -> Tensor:
        return F.dropout2d(features, self.dropout, self.training)


class ResNet38(nn.Module):
    """Images (B, 3, H, W) to three features at stride 8: 512, 1024 and 4096 channels, all after a ReLU."""

    channels = (512, 1024, 4096)

    def __init__(self) -> None:
        super().__init__()
        self.conv1a = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        width = 64
        for stage, (outer, blocks) in {2: (128, 3), 3: (256, 3), 4: (512, 6)}.items():
            for block in range(blocks):
                self.add_module(_name(stage, block), Basic(width, outer, outer, stride=1 if block else 2))
                width = outer
        self.b5 = Basic(512, 512, 1024, first=1, dilation=2)
        self.b5_1 = Basic(1024, 512, 1024, first=2, dilation=2)
        self.b5_2 = Basic(1024, 512, 1024, first=2, dilation=2)
        self.b6 = Bottleneck(1024, 2048, dilation=4, dropout=0.3)
        self.b7 = Bottleneck(2048, 4096, dilation=4, dropout=0.5)
        self.bn7 = nn.BatchNorm2d(4096)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> list[Tensor]:
        features: Tensor = self.conv1a(images)
        activated = {}
        for name, block in self.named_children():
            if isinstance(block, _Block):
                features, activated[name] = block(features)
        return [activated["b5"], activated["b6"], torch.relu(self.bn7(features))]


def _name(stage: int, block: int) -> str:
    return f"b{stage}_{block}" if block else f"b{stage}"
