"""Small data for the programs of `lists/newer.py`, in the form in which each of them reads it.

python benchmarks/programs/newer_data.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

NUM_RESIDUES, NUM_TRAIN, NUM_VALID, NUM_TEST = 200, 203, 51, 20


def make(folder: Path) -> None:
    chosen = np.random.default_rng(0)
    (folder / "out").mkdir(parents=True, exist_ok=True)
    _tables(folder / "tables", chosen)
    _proteins(folder / "proteins", chosen)


def _tables(folder: Path, chosen: np.random.Generator) -> None:
    """Tables to learn from, as nanoTabPFN's prior dumps them."""
    import h5py

    folder.mkdir(exist_ok=True)
    num, rows, columns = 3200, 150, 5
    with h5py.File(folder / "300k_150x5_2.h5", "w") as file:
        file["X"] = chosen.normal(size=(num, rows, columns)).astype(np.float32)
        file["y"] = chosen.integers(0, 2, (num, rows)).astype(np.float32)
        file["num_features"] = np.full(num, columns)
        file["num_datapoints"] = np.full(num, rows)
        file["single_eval_pos"] = np.full(num, 100)
        file["max_num_classes"] = np.array([2])


def _proteins(folder: Path, chosen: np.random.Generator) -> None:
    """Chains of equal length, one in each cluster, as ProteinMPNN's training set has them.

    It shuffles its batches without a seed, and drops the chain that no longer fits into one: with
    these numbers all batches have the same size.
    """
    import torch

    (folder / "pdb" / "aa").mkdir(parents=True, exist_ok=True)
    lines = ["CHAINID,DEPOSITION,RESOLUTION,HASH,CLUSTER,SEQUENCE\n"]
    for number in range(NUM_TRAIN + NUM_VALID + NUM_TEST):
        name = f"{number // 100}aa{number % 100:02d}"
        letters = "".join(chosen.choice(list("ACDEFGIKLMNPQRSTVWY"), NUM_RESIDUES))
        lines.append(f"{name}_A,2020-01-01,2.0,{number:06d},{number},{letters}\n")
        places = np.cumsum(chosen.normal(size=(NUM_RESIDUES, 14, 3)), 0).astype(np.float32)
        chain = {"seq": letters, "xyz": torch.from_numpy(places)}
        path = folder / "pdb" / "aa" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(chain, f"{path}_A.pt")
        meta = {"asmb_ids": [], "asmb_chains": [], "chains": ["A"]}
        torch.save(meta, f"{path}.pt")
    (folder / "list.csv").write_text("".join(lines))
    parts = {"valid": (NUM_TRAIN, NUM_VALID), "test": (NUM_TRAIN + NUM_VALID, NUM_TEST)}
    for part, (first, num) in parts.items():
        clusters = "".join(f"{first + number}\n" for number in range(num))
        (folder / f"{part}_clusters.txt").write_text(clusters)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
