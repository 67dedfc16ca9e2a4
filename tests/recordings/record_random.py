"""Records on a GPU what torch draws there: python record_random.py random.jsonl"""

from __future__ import annotations

import json
import sys
import zlib
from typing import Any

import torch
from random_cases import AMOUNTS, NUMBERS, OFFSETS, num_taken, start


def described(numbers: torch.Tensor) -> dict[str, Any]:
    flat = numbers.detach().cpu().flatten()
    ends = [*flat[:6].double().tolist(), *flat[-6:].double().tolist()]
    if flat.dtype.is_floating_point:
        return {"ends": ends, "sum": float(flat.float().numpy().sum(dtype="float64"))}
    return {"ends": ends, "crc32": zlib.crc32(flat.numpy().astype("int64").tobytes())}


def main() -> None:
    with open(sys.argv[1], "w") as file:
        for name, draw in {**NUMBERS, **AMOUNTS}.items():
            for offset in OFFSETS:
                start(offset)
                numbers = draw()
                line = {"case": name, "offset": offset, "taken": num_taken(offset)}
                if name in NUMBERS:
                    line.update(described(numbers))
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
