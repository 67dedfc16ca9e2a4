"""Records what cuDNN's recurrent networks allocate, packed and not. On a GPU:

    python benchmarks/libraries/recurrent.py FILE.jsonl.gz --seconds 110

Networks of random sizes, until the time is spent. One line a case: the sizes of the network, the
lengths of its samples, and `forward` and `backward`, the bytes of every allocation. In training the
last two of the forward pass are the workspace and the reserve, else the last is the workspace.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
BATCH_SIZES = (1, 2, 3, 5, 8, 13, 16, 32, 48, 64, 100, 128)
STEPS = (1, 7, 20, 33, 64, 100, 127, 128, 200, 300, 400)
HIDDEN = (32, 64, 100, 128, 192, 200, 256, 300, 384, 512, 640, 768, 1024)
INPUTS = (16, 40, 80, 128, 161, 256, 300, 512, 640, 1024, 1280, 2000)


def cases() -> Iterator[dict[str, Any]]:
    draw = random.Random(16)
    while True:
        kind, layers = draw.choice(("LSTM", "LSTM", "GRU", "RNN")), draw.choice((1, 1, 2, 3, 4, 5))
        batch, longest, hidden = draw.choice(BATCH_SIZES), draw.choice(STEPS), draw.choice(HIDDEN)
        is_packed, lengths = draw.random() < 0.75, [longest] * batch
        if is_packed and draw.random() < 0.8:
            shorter = (draw.randint(1, longest) for _ in range(batch - 1))
            lengths = [longest, *sorted(shorter, reverse=True)]
        yield {
            "kind": kind,
            "dtype": draw.choice(("fp32", "fp32", "bf16", "fp16")),
            "input": draw.choice(INPUTS),
            "hidden": hidden,
            "layers": layers,
            "directions": draw.choice((1, 2)),
            "dropout": draw.choice((0.0, 0.0, 0.2)) if layers > 1 else 0.0,
            "proj": draw.choice((0, 0, 0, 0, hidden // 2)) if kind == "LSTM" else 0,
            "train": draw.random() < 0.85,
            "lengths": lengths,
            "packed": is_packed,
        }


def measure(case: dict[str, Any]) -> dict[str, list[int]]:
    dtype, lengths = DTYPES[case["dtype"]], case["lengths"]
    options = {"proj_size": case["proj"]} if case["kind"] == "LSTM" else {}
    options |= {"dropout": case["dropout"], "bidirectional": case["directions"] == 2}
    make = getattr(nn, case["kind"])
    network = make(case["input"], case["hidden"], case["layers"], **options).to("cuda", dtype)
    shape = lengths[0], len(lengths), case["input"]
    x = torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True)
    is_packed = case["packed"]
    given = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths)) if is_packed else x
    network.train(case["train"])
    torch.cuda.memory._record_memory_history(context=None, clear_history=True)
    before = _num_allocations()
    with torch.set_grad_enabled(case["train"]):
        out = network(given)[0]
    num_forward = _num_allocations() - before
    if case["train"]:
        data = out.data if is_packed else out
        torch.autograd.backward([data], [torch.empty_like(data)])
    torch.cuda.synchronize()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    made = [event["size"] for event in events if event["action"] == "alloc"]
    return {"forward": made[:num_forward], "backward": made[num_forward:]}


def _num_allocations() -> int:
    return torch.cuda.memory_stats()["allocation.all.allocated"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=110.0)
    given = parser.parse_args()
    begun = time.time()
    with gzip.open(given.out, "wt") as file:
        for case in cases():
            if time.time() - begun > given.seconds:
                break
            file.write(json.dumps(case | measure(case)) + "\n")
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
