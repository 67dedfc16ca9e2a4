"""Makes the table of workspaces that cuBLAS takes for 1 x 1 convolutions from the recorded plans.

    PYTHONPATH=src python benchmarks/convolutions/products.py

cuDNN leaves them to cuBLAS, whose kernels take nothing or a few hundred bytes, seldom more. Which
one it takes follows no rule that was found (a decision tree is right for 80 % of those it has not
seen), so the table has those that take something.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
from pathlib import Path

from vramcast.simulate.cudnn.gpu_only import PRODUCTS, product_key

HERE = Path(__file__).parent
RECORDED = {
    "layers.json.gz": "plans-h200-torch-2.11.csv.gz",
    "layers-of-rows.json.gz": "plans-of-rows-h200-torch-2.11.csv.gz",
}
# precision, whether it may be rounded, channels last: as in record_plans.py
FORMS = (
    *(("fp32", True, False), ("bf16", False, False), ("fp16", False, False)),
    *(("fp32", True, True), ("bf16", False, True), ("fp16", False, True)),
)
ENGINES = {"0": "58", "1": "63", "2": "62"}  # by pass


def main() -> None:
    table = {}
    for layers_file, plans_file in RECORDED.items():
        with gzip.open(HERE / layers_file, "rt") as file:
            layers = json.load(file)["layers"]
        with gzip.open(HERE / plans_file, "rt") as file:
            for layer, batch, form, which, _, engine, _, num_bytes, *_ in csv.reader(file):
                if ENGINES.get(which) != engine or not num_bytes or int(form) >= len(FORMS):
                    continue
                weight, x = layers[int(layer)]["weight"], layers[int(layer)]["x"]
                dtype, _, channels_last = FORMS[int(form)]
                more_bytes = int(num_bytes)
                if which == "2" and not channels_last:  # a gradient for each image comes first
                    more_bytes -= int(batch) * math.prod(weight) * 4
                is_some = more_bytes > 0 or (which == "2" and channels_last)
                if math.prod(weight[2:]) == 1 and is_some:
                    sizes = int(batch), *weight[:2], math.prod(x[1:])
                    table[product_key(int(which), dtype, channels_last, *sizes)] = more_bytes
    text = json.dumps(dict(sorted(table.items())), separators=(",", ":"))
    PRODUCTS.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(table)} products, {PRODUCTS.stat().st_size} bytes")


if __name__ == "__main__":
    main()
