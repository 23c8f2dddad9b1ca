"""`tagmask selftest`: what works on this machine, how fast, and how exact; half a minute.

The output belongs into a bug report. Nothing is downloaded, and files go into a temporary folder.
"""

import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from tagmask.errors import TagmaskError
from tagmask.version import __version__

PACKAGES = ("torch", "torchvision", "timm", "accelerate", "numpy", "scipy", "pillow", "tyro")
# single precision: differences of the same sums in another order
TOLERANCE = 1e-4
# GPUs may round products to fewer digits
GPU_TOLERANCE = 1e-2


@dataclass(frozen=True)
class SelftestSettings:
    """Try every part on this machine, the GPU included, in half a minute; for bug reports.

    Example:
      tagmask selftest
    """

    device: str = ""
    """cpu, cuda, cuda:1 or mps; default: the one that would be used."""


def selftest(settings: SelftestSettings) -> str:
    """Try every part and return a line for each.

    Args:
        settings: Which device to try.

    Raises:
        TagmaskError: A part failed; the message holds all lines.
    """
    import torch

    chosen = settings.device or _best_device()
    try:
        device = torch.device(chosen)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise TagmaskError(
            f"--device {chosen} cannot be used ({reason}); leave it out, or choose another."
        ) from None
    lines = [*_versions(), *_devices(chosen)]
    failed = []
    for title, check in _CHECKS.items():
        began = time.monotonic()
        try:
            said = check(device)
        # a part that fails must not hide the others
        except Exception as error:
            failed.append(title)
            said = f"FAILED: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
        lines.append(f"{title:22} {said} ({time.monotonic() - began:.1f} s)")
    if failed:
        lines.append(f"{len(failed)} of {len(_CHECKS)} parts failed: {', '.join(failed)}.")
        raise TagmaskError("the self-test found faults:\n" + "\n".join(lines))
    lines.append(f"all {len(_CHECKS)} parts work{_what_is_missing()}.")
    return "\n".join(lines)


def _best_device() -> str:
    """Return the device that a run would use."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "cpu"


def _versions() -> list[str]:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} MISSING")
    system = f"{platform.system()} {platform.machine()}"
    return [f"tagmask {__version__}, Python {sys.version.split()[0]}, {system}", ", ".join(found)]


def _devices(chosen: str) -> list[str]:
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    gpus = ", ".join(names) if names else "no GPU"
    return [f"{gpus}; {torch.get_num_threads()} threads; tried on: {chosen}", ""]


def _check_maps(device: Any) -> str:
    """Compare maps by the shortcut with one full backward pass per class."""
    import torch

    from tagmask.acr.localize import localize
    from tagmask.methods.trace import class_trace
    from tagmask.models.classifier import Classifier

    torch.manual_seed(0)
    model = Classifier("tagmask_tiny", num_classes=3).eval().to(device)
    images = model.normalize(torch.rand(1, 3, 64, 96, device=device))
    (quick,) = localize(model, images, classes=[[0, 2]], layers=2, affinity=False)  # (2, 8, 12)
    trace = class_trace(model, images, torch.tensor([[0, 2]], device=device))
    last = [gradient[0, :, :, 0, model.prefix :] for gradient in trace.gradients[-2:]]
    plain = torch.stack([gradient.relu().mean(dim=1) for gradient in last]).sum(0)  # (2, 96)
    difference = (quick.reshape(2, -1) - plain).abs().max()
    off = float(difference / plain.abs().max())
    limit = TOLERANCE if device.type == "cpu" else GPU_TOLERANCE
    if not off <= limit:
        raise ArithmeticError(f"the shortcut differs from backward passes by {off:.1e}")
    return f"shortcut within {off:.0e} of backward passes"


def _check_same_as_cpu(device: Any) -> str:
    """Compare a forward and backward pass with the processor's."""
    import torch

    from tagmask.models.classifier import Classifier

    torch.manual_seed(0)
    model = Classifier("tagmask_tiny", num_classes=3).eval()
    images = torch.rand(2, 3, 64, 64)
    results = []
    for place in (torch.device("cpu"), device):
        moved = model.to(place)
        moved.zero_grad()
        logits = moved(moved.normalize(images.to(place)))
        logits.square().sum().backward()
        gradient = next(moved.parameters()).grad
        if gradient is None:
            raise ArithmeticError("the first weights have no gradient")
        results.append((logits.detach().cpu(), gradient.cpu()))
    logit = float((results[0][0] - results[1][0]).abs().max())
    scale = float(results[0][1].abs().max())
    difference = (results[0][1] - results[1][1]).abs().max()
    slope = float(difference) / max(scale, 1e-12)
    limit = TOLERANCE if device.type == "cpu" else GPU_TOLERANCE
    if not max(logit, slope) <= limit:
        raise ArithmeticError(f"differs from the processor by {logit:.1e}, gradients {slope:.1e}")
    return f"logits within {logit:.0e} of the processor's, gradients within {slope:.0e}"


def _check_speed(device: Any) -> str:
    """Time the network that the preset for own photos uses, without its weights."""
    import torch

    from tagmask.models.classifier import Classifier

    model = Classifier("vit_small_patch14_reg4_dinov2", num_classes=2, img_size=392).eval()
    model = model.to(device)
    images = model.normalize(torch.rand(1, 3, 392, 392, device=device))
    times = []
    with torch.no_grad():
        for _ in range(3):
            began = time.perf_counter()
            model(images).cpu()
            times.append(time.perf_counter() - began)
    best = min(times)
    return f"{best:.2f} s a photo, so 100 photos take about {max(1, round(100 * best * 1.6))} s"


def _check_crf(device: Any) -> str:
    """Sharpen a blurred disc; its border must come back."""
    from tagmask.masks.crf import SEEDS, dense_crf

    rows, columns = np.mgrid[:120, :160]
    disc = (rows - 60) ** 2 + (columns - 80) ** 2 < 40**2
    photo = np.where(disc[..., None], (200, 60, 40), (40, 80, 160)).astype(np.uint8)
    wrong = (rows - 60) ** 2 + (columns - 84) ** 2 < 36**2
    scores = np.where(wrong, 0.7, 0.3).astype(np.float32)
    began = time.perf_counter()
    labels = dense_crf(photo, np.stack([1 - scores, scores]), SEEDS).argmax(0)
    taken = time.perf_counter() - began
    agreed = float((labels.astype(bool) == disc).mean())
    if agreed < 0.97:
        raise ArithmeticError(f"only {100 * agreed:.1f} % of the pixels are right")
    return f"{100 * agreed:.1f} % of the pixels right, {1000 * taken:.0f} ms"


def _check_run(device: Any) -> str:
    """Do every stage of a small run on drawn pictures, in a temporary folder."""
    import contextlib
    import io

    from tagmask.runs.run import run_images

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            done = run_images(
                preset="scenes",
                count=8,
                out=out,
                estimate=False,
                train={"steps": 2, "batch": 4},
                pseudo={"method": "crf"},
                segment={"steps": 2, "batch": 4, "workers": 0},
            )
        masks = len(list((out / "6_predictions").glob("*.png")))
    if masks != 8:
        raise RuntimeError(f"{masks} masks of 8 pictures")
    return f"{len(done.made)} stages, {masks} masks"


def _check_weights(device: Any) -> str:
    """Say whether the default weights are here already; nothing is fetched."""
    if _has_default_weights():
        return "the default weights are here"
    return "the default weights are not here yet; the first run fetches them (88 MB)"


def _has_default_weights() -> bool:
    from huggingface_hub import try_to_load_from_cache

    name = "timm/vit_small_patch14_reg4_dinov2.lvd142m"
    return isinstance(try_to_load_from_cache(name, "model.safetensors"), str)


def _what_is_missing() -> str:
    """Return the end of the last line: what a run on photos would still fetch."""
    if _has_default_weights():
        return ""
    return (
        ", but the default weights are not here: a run on your own photos fetches them first "
        "(88 MB), or takes --weights FILE"
    )


_CHECKS: dict[str, Callable[[Any], str]] = {
    "maps": _check_maps,
    "forward and backward": _check_same_as_cpu,
    "dense CRF": _check_crf,
    "speed of the network": _check_speed,
    "a small run": _check_run,
    "default weights": _check_weights,
}
