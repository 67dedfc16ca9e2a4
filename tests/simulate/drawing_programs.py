"""Random numbers on the simulated GPU are those of an H200: run by test_device_programs.py.

python tests/simulate/drawing_programs.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from program_device import run_programs

# isort: split
# the device is loaded before torch
import torch

from vramcast.hardware.calibration.table import minor_version

RECORDINGS = Path(__file__).parents[1] / "recordings"
sys.path.insert(0, str(RECORDINGS))
import random_cases as cases  # noqa: E402
import record_random  # noqa: E402


def _recorded() -> list[dict[str, Any]]:
    lines = (RECORDINGS / "h200-torch-2.11-random.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def numbers_that_are_drawn_are_those_that_a_gpu_draws() -> None:
    for line in _recorded():
        if line["case"] not in cases.NUMBERS:
            continue
        cases.start(line["offset"])
        found = record_random.described(cases.NUMBERS[line["case"]]())
        assert found.get("crc32") == line.get("crc32"), line["case"]
        # sines and logarithms are rounded in other ways there
        is_near = [abs(a - b) <= 1e-5 for a, b in zip(found["ends"], line["ends"], strict=True)]
        assert all(is_near), (line["case"], found["ends"], line["ends"])
        if "sum" in found:
            assert abs(found["sum"] - line["sum"]) <= 1e-3, (line["case"], found["sum"])


def the_generator_goes_as_far_as_on_a_gpu() -> None:
    wrong = []
    for line in _recorded():
        cases.start(line["offset"])
        {**cases.NUMBERS, **cases.AMOUNTS}[line["case"]]()
        if (taken := cases.num_taken(line["offset"])) != line["taken"]:
            wrong.append((line["case"], taken, line["taken"]))
    assert not wrong, wrong


def a_mask_of_random_numbers_picks_as_many_as_they_say() -> None:
    torch.manual_seed(42)
    chosen = torch.rand(256, 512, device="cuda") < 0.15
    rows = torch.empty(256, 512, 8, device="cuda")[chosen]
    assert len(rows) == len(chosen.nonzero()) == int(chosen.sum())
    assert 19_000 < len(rows) < 20_400 and len(rows) != int(0.15 * 256 * 512)
    shuffled = torch.rand(256, 512, device="cuda").flatten()[torch.randperm(256 * 512)]
    assert abs(len((shuffled < 0.15).nonzero()) - 0.15 * 256 * 512) < 100, "not computed"


def gates_above_zero_are_those_that_are_not_zero() -> None:
    """Sparsely gated experts split what nonzero has found by sums of a comparison."""
    gates = torch.nn.Linear(64, 10).cuda()(torch.randn(7, 64, device="cuda")).softmax(1)
    routed = torch.zeros_like(gates).scatter(1, gates.topk(4).indices, gates.topk(4).values)
    of_experts = (routed.nonzero(), (routed > 0).sum(0).tolist())
    parts = torch.split(of_experts[0], of_experts[1])
    assert sum(map(len, parts)) == len(routed.nonzero()) > 0


def what_a_mask_left_out_is_not_picked() -> None:
    """Programs that build a tour or a sequence check it: attention-learn-to-route does."""
    model, places = torch.nn.Linear(16, 20).cuda(), torch.arange(20, device="cuda").expand(64, 20)
    picks = {
        "max": lambda shares: shares.max(1).indices,
        "argmax": lambda shares: shares.argmax(1),
        "multinomial": lambda shares: shares.multinomial(1).squeeze(1),
        "topk": lambda shares: shares.topk(1).indices.squeeze(1),
    }
    for name, pick in picks.items():
        left_out = (places > 2) & (places < 19)
        scores = model(torch.randn(64, 16, device="cuda"))
        by_bool = scores.masked_fill(left_out, -torch.inf)
        takes_bytes = minor_version(torch.__version__) < (2, 15)
        scores[left_out.byte() if takes_bytes else left_out] = -torch.inf
        for kept in (by_bool, scores):
            for shares in ((kept / 1.5).log_softmax(1).exp(), kept.softmax(1)):
                picked = pick(shares)
                assert not left_out.gather(1, picked[:, None]).any(), name
                assert len(picked.unique()) > 1, name


def a_checkpointed_part_draws_the_same_numbers_again() -> None:
    drawn = []

    def part(x: torch.Tensor) -> torch.Tensor:
        drawn.append(torch.randint(1000, (8,), device="cuda").tolist())
        return x.sin()

    x = torch.ones(4, device="cuda", requires_grad=True)
    for _ in range(2):
        torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False).sum().backward()
    assert drawn[0] == drawn[1] != drawn[2] == drawn[3], drawn


def what_a_generator_of_the_program_draws_leaves_the_gpus_as_it_is() -> None:
    cases.start(0)
    torch.randint(10, (8,), device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    torch.randperm(100, device="cuda", generator=torch.Generator("cuda"))
    assert cases.num_taken(0) == 0


def a_generator_of_the_program_draws_what_the_gpus_own_does_from_the_same_seed() -> None:
    own = torch.Generator("cuda").manual_seed(7)
    torch.manual_seed(7)
    for _ in range(2):
        torch.randperm(50, device="cuda", generator=own)
        torch.randperm(50, device="cuda")
        kept = torch.rand(64, device="cuda", generator=own) < 0.5
        assert kept.tolist() == (torch.rand(64, device="cuda") < 0.5).tolist()
    assert own.get_offset() == torch.cuda.default_generators[0].get_offset() > 0


def a_state_of_the_wrong_size_is_refused_as_torch_does() -> None:
    try:
        torch.cuda.set_rng_state(torch.zeros(3, dtype=torch.uint8))
    except RuntimeError as error:
        assert "RNG state is wrong size" in str(error)
    else:
        raise AssertionError("it was taken")


if __name__ == "__main__":
    run_programs()
