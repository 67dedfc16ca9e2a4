"""Data of other kinds for data.py: scenes, clouds of points, patches, sequences of tokens."""

from __future__ import annotations

import json
import random
from pathlib import Path

NUM_KINDS, NUM_CLOUDS, NUM_POINTS = 10, {"train": 144, "test": 48}, 1100


def make(folder: Path) -> None:
    _scene(folder / "scene")
    _clouds(folder / "clouds")
    _patches(folder / "patches")
    _completions(folder / "completions")


def _scene(folder: Path) -> None:
    """Views of a scene, as the programs for radiance fields read those made by Blender."""
    import numpy as np
    from PIL import Image

    numbers = np.random.default_rng(0)
    for part, num_views in (("train", 4), ("val", 2), ("test", 2)):
        (folder / part).mkdir(parents=True, exist_ok=True)
        frames = []
        for index in range(num_views):
            picture = numbers.integers(0, 255, (800, 800, 4), dtype=np.uint8)
            Image.fromarray(picture).save(folder / part / f"r_{index}.png", compress_level=1)
            place = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 4 + index / 10], [0, 0, 0, 1]]
            frames.append({"file_path": f"./{part}/r_{index}", "transform_matrix": place})
        told = {"camera_angle_x": 0.69, "frames": frames}
        (folder / f"transforms_{part}.json").write_text(json.dumps(told))


def _clouds(folder: Path) -> None:
    """Points with their normals, a file for each shape."""
    import numpy as np

    numbers = np.random.default_rng(0)
    kinds = [f"kind{index}" for index in range(NUM_KINDS)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "modelnet10_shape_names.txt").write_text("\n".join(kinds) + "\n")
    for part, num_clouds in NUM_CLOUDS.items():
        names = []
        for index in range(num_clouds):
            kind = kinds[index % NUM_KINDS]
            names.append(f"{kind}_{part}{index:04}")
            (folder / kind).mkdir(exist_ok=True)
            points = numbers.normal(size=(NUM_POINTS, 6))
            np.savetxt(folder / kind / f"{names[-1]}.txt", points, "%.4f", ",")
        (folder / f"modelnet10_{part}.txt").write_text("\n".join(names) + "\n")


def _patches(folder: Path) -> None:
    """Pieces of pictures, coarse and fine."""
    import h5py
    import numpy as np

    numbers = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / "train.h5", "w") as file:
        for name in ("lr", "hr"):
            file[name] = numbers.integers(0, 255, (400, 33, 33)).astype(np.float32)
    with h5py.File(folder / "eval.h5", "w") as file:
        for name in ("lr", "hr"):
            for index, width in enumerate((255, 288, 228)):
                file[f"{name}/{index}"] = numbers.integers(0, 255, (255, width)).astype(np.float32)


def _completions(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(0)
    for part, num_rows in (("train", 160), ("valid", 24)):
        rows = []
        for _ in range(num_rows):
            context, completion = (
                [numbers.randrange(50257) for _ in range(numbers.randint(20, 60))] for _ in range(2)
            )
            rows.append(json.dumps({"context": context, "completion": completion}))
        (folder / f"{part}.jsonl").write_text("\n".join(rows) + "\n")
