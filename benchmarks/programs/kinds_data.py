"""Small data for the programs of `lists/kinds.py`, in the form in which each of them reads it.

python benchmarks/programs/kinds_data.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

NUM_BODIES = 5
JEPA = """data: {batch_size: 32, color_jitter_strength: 0.0, crop_scale: [0.3, 1.0], crop_size: 224,
  image_folder: pictures/, num_workers: 2, pin_mem: true, root_path: DATA,
  use_color_distortion: false, use_gaussian_blur: false, use_horizontal_flip: false}
logging: {folder: DATA/out/ijepa, write_tag: jepa}
mask: {allow_overlap: false, aspect_ratio: [0.75, 1.5], enc_mask_scale: [0.85, 1.0], min_keep: 10,
  num_enc_masks: 1, num_pred_masks: 4, patch_size: 16, pred_mask_scale: [0.15, 0.2]}
meta: {copy_data: false, load_checkpoint: false, model_name: vit_small, pred_depth: 6,
  pred_emb_dim: 384, read_checkpoint: null, use_bfloat16: true}
optimization: {ema: [0.996, 1.0], epochs: 300, final_lr: 1.0e-06, final_weight_decay: 0.4,
  ipe_scale: 1.0, lr: 0.001, start_lr: 0.0002, warmup: 40, weight_decay: 0.04}
"""


def make(folder: Path) -> None:
    chosen = np.random.default_rng(0)
    (folder / "out" / "ijepa").mkdir(parents=True, exist_ok=True)
    _bodies(folder / "bodies", chosen)
    _colours(folder / "colours", chosen)
    _skin(folder / "skin", chosen)
    _carvana(folder / "carvana", chosen)
    (folder / "series").mkdir(exist_ok=True)
    np.save(folder / "series" / "load.npy", chosen.normal(size=(6000, 7)))
    _digits(folder / "digits", chosen)
    (folder / "ijepa.yaml").write_text(JEPA.replace("DATA", str(folder)))


def _bodies(folder: Path, chosen: np.random.Generator) -> None:
    folder.mkdir(exist_ok=True)
    for part, num in (("train", 3000), ("valid", 500), ("test", 500)):
        charges = chosen.choice([-1.0, 1.0], size=(num, NUM_BODIES, 1))
        arrays = {
            "loc": chosen.normal(size=(num, 49, 3, NUM_BODIES)),
            "vel": chosen.normal(size=(num, 49, 3, NUM_BODIES)),
            "edges": charges @ charges.transpose(0, 2, 1),
            "charges": charges,
        }
        for name, values in arrays.items():
            path = folder / f"{name}_{part}_charged5_initvel1small.npy"
            np.save(path, values.astype(np.float32))


def _colours(folder: Path, chosen: np.random.Generator) -> None:
    import torch

    folder.mkdir(exist_ok=True)
    for part, num in (("train", 50_000), ("test", 10_000)):
        images = torch.from_numpy(chosen.integers(0, 256, (num, 32, 32, 3), np.uint8))
        labels = torch.from_numpy(chosen.integers(0, 10, num))
        found = {"images": images, "labels": labels, "classes": [*map(str, range(10))]}
        torch.save(found, folder / f"{part}.pt")


def _skin(folder: Path, chosen: np.random.Generator) -> None:
    from PIL import Image

    for part, num in (("train", 12), ("valid", 4), ("test", 4)):
        for name in (part, f"{part}_GT"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(num):
            pixels = chosen.integers(0, 256, (96, 96, 3), np.uint8)
            name = f"ISIC_{number:07d}"
            Image.fromarray(pixels).save(folder / part / f"{name}.jpg")
            mask = Image.fromarray((pixels[..., 0] > 127).astype(np.uint8) * 255)
            mask.save(folder / f"{part}_GT" / f"{name}_segmentation.png")


def _carvana(folder: Path, chosen: np.random.Generator) -> None:
    """As many pictures as are needed for one batch of the validation."""
    from PIL import Image

    for name in ("imgs", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(24):
        pixels = chosen.integers(0, 256, (320, 480, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "imgs" / f"car{number:02d}.jpg")
        mask = Image.fromarray((pixels[..., 0] > 127).astype(np.uint8))
        mask.save(folder / "masks" / f"car{number:02d}_mask.gif")


def _digits(folder: Path, chosen: np.random.Generator) -> None:
    """A picture in a file for each digit, in a folder for each class."""
    from PIL import Image

    for number in range(640):
        (folder / str(number % 10)).mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(chosen.integers(0, 256, (28, 28), np.uint8))
        picture.save(folder / str(number % 10) / f"{number}.png")


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
