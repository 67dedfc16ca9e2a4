"""Records the bytes that some kernels of torch take: topk, batch norm with channels last, CTC.

    python benchmarks/libraries/sizes.py FILE.jsonl.gz --seconds 75

Random shapes, until the time is spent. One line a case: its name and sizes, and `forward` and
`backward`: a positive number of bytes is taken, a negative one given back.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
Case = tuple[dict[str, Any], Callable[[], Any], bool]
draw = random.Random(7)


def topk() -> Case:
    shape = [int(2 ** draw.uniform(0, 12)), int(2 ** draw.uniform(5, 15))]
    k, dtype = min(shape[1], draw.choice((1, 5, 20, 100, 1000))), draw.choice(list(DTYPES))
    x = torch.randn(shape, device="cuda", dtype=DTYPES[dtype])
    case = {"name": "topk", "shape": shape, "k": k, "dtype": dtype}
    return case, lambda: x.topk(k), False


def norm() -> Case:
    side = draw.choice((4, 7, 14, 28, 32, 56))
    shape = [draw.choice((2, 4, 16, 64)), draw.choice((8, 24, 58, 64, 116, 256, 1024)), side, side]
    dtype = draw.choice(list(DTYPES))
    layer = torch.nn.BatchNorm2d(shape[1]).cuda()
    x = torch.randn(shape, device="cuda", dtype=DTYPES[dtype])
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    case = {"name": "batch_norm_channels_last", "shape": shape, "dtype": dtype}
    return case, lambda: layer(x), True


def ctc() -> Case:
    steps, batch, labels = draw.choice((50, 200, 399)), draw.choice((1, 4, 16)), 32
    lengths = [draw.randint(1, 25) for _ in range(batch)]
    x = torch.randn(steps, batch, labels, device="cuda").log_softmax(-1).detach().requires_grad_()
    targets = torch.randint(2, labels, (batch, 25), device="cuda")
    inputs, wanted = torch.full((batch,), steps), torch.tensor(lengths)
    case = {"name": "ctc", "t": steps, "b": batch, "c": labels, "lengths": lengths}
    return case, lambda: F.ctc_loss(x, targets, inputs, wanted), True


def events(call: Callable[[], Any]) -> tuple[Any, list[int]]:
    torch.cuda.memory._record_memory_history(context=None, clear_history=True)
    result = call()
    torch.cuda.synchronize()
    found = torch.cuda.memory._snapshot()["device_traces"][0]
    signs = {"alloc": 1, "free_completed": -1}
    return result, [signs[e["action"]] * e["size"] for e in found if e["action"] in signs]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=75.0)
    given = parser.parse_args()
    begun = time.time()
    with gzip.open(given.out, "wt") as file:
        while time.time() - begun < given.seconds:
            case, call, is_trained = draw.choice((topk, norm, ctc))()
            call()
            out, case["forward"] = events(call)
            if is_trained:
                grad = torch.ones_like(out)
                _, case["backward"] = events(lambda out=out, grad=grad: out.backward(grad))
            file.write(json.dumps(case) + "\n")
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
