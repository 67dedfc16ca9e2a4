"""Programs that capture their training step as a CUDA graph."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast

pytestmark = pytest.mark.usefixtures("warm_simulations")
MIB = 1 << 20
# as in torch's documentation
TRAIN = """
import sys, torch
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x = torch.randn(4096, 1024, device="cuda")

def step():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()

stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(int(sys.argv[1])):
        step()
optimizer.zero_grad()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
for _ in range(10**9):
    x.copy_(torch.randn(4096, 1024))
    graph.replay()
"""


@pytest.mark.parametrize("num_warm_up", [3, 11])
def test_a_graph_is_captured_after_the_warm_up_and_its_replays_are_steps(
    tmp_path: Path, num_warm_up: int
) -> None:
    """The pool of the graph keeps three activations and the gradients, beside what the warm-up
    has left in the cache of its stream."""
    (program := tmp_path / "train.py").write_text(TRAIN)
    line = ["python", str(program), str(num_warm_up)]
    found = vramcast.predict(line, gpu="h200")
    assert found.phases[-1].num_steps > num_warm_up + 1
    assert found.peak_phase.startswith(f"step {num_warm_up + 1}")
    warmed_up = vramcast.predict(line, gpu="h200", steps=num_warm_up)
    assert found.peak_reserved_bytes >= warmed_up.peak_reserved_bytes + 36 * MIB
    # two products for each of the batch's rows: what the graph does, not what its capture does
    assert found.step is not None and found.step.flops >= 2 * 2 * 4096 * 1024 * 1024


def test_a_program_that_does_all_its_training_on_another_stream_is_stopped(tmp_path: Path) -> None:
    """effdet's loader gives its batches there. Where its code names graphs, it may warm one up."""
    without_graph = TRAIN.partition("optimizer.zero_grad()\ngraph")[0]
    num_steps = []
    for name, comment in (("train.py", ""), ("later.py", "# TODO: torch.cuda.graph\n")):
        (program := tmp_path / name).write_text(comment + without_graph)
        found = vramcast.predict(["python", str(program), str(10**9)], gpu="h200")
        num_steps.append(found.phases[-1].num_steps)
    assert num_steps[0] <= 4 and 11 <= num_steps[1] <= 13


def test_replays_of_a_backward_pass_and_updates_outside_are_steps(tmp_path: Path) -> None:
    """As in torch's example with a scaler."""
    text = TRAIN.replace(
        "with torch.cuda.graph(graph):\n    step()",
        "with torch.cuda.graph(graph):\n    model(x).square().mean().backward()",
    ).replace("graph.replay()", "graph.replay()\n    optimizer.step()")
    (program := tmp_path / "train.py").write_text(text)
    found = vramcast.predict(["python", str(program), "3"], gpu="h200")
    assert found.phases[-1].num_steps <= 8
    one = 2 * 2 * 4096 * 1024 * 1024
    assert found.step is not None and one <= found.step.flops < 1.5 * one


def test_a_number_cannot_be_read_while_a_graph_is_captured(tmp_path: Path) -> None:
    text = TRAIN.replace("    step()\nfor", "    step()\n    print(x.sum().item())\nfor")
    (program := tmp_path / "train.py").write_text(text)
    with pytest.raises(vramcast.WorkloadError, match="not permitted when stream is capturing"):
        vramcast.predict(["python", str(program), "3"], gpu="h200")
