"""ultralytics' YOLO from scratch on a few generated images."""

import pathlib

import numpy
from PIL import Image
from ultralytics import YOLO

folder = pathlib.Path("boxes").resolve()
for part in ("train", "val"):
    for kind in ("images", "labels"):
        (folder / kind / part).mkdir(parents=True, exist_ok=True)
    for index in range(16):
        picture = numpy.random.randint(0, 255, (320, 320, 3), dtype=numpy.uint8)
        Image.fromarray(picture).save(folder / "images" / part / f"{index}.jpg")
        (folder / "labels" / part / f"{index}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
(folder / "data.yaml").write_text(
    f"path: {folder}\ntrain: images/train\nval: images/val\nnames: [box]\n"
)
model = YOLO("yolo11n.yaml")
model.train(data=str(folder / "data.yaml"), epochs=2, imgsz=320, batch=8, workers=2, plots=False)
