"""Training steps that go wrong on purpose: the GPU fails, memory runs out, nothing ends.

`fault` says how; without it the step is sound and always the same. The same names are understood
with `--device cpu`, where the errors of a GPU are raised as torch would raise them.
"""

import ctypes
import os
import subprocess
import sys
import time

import torch

# of sticky errors CUDA says that the context is lost: only a new process can go on
KERNELS = {
    "illegal access": 'extern "C" __global__ void fault(float* x) { ((float*)16)[0] = x[0]; }',
    "trap": 'extern "C" __global__ void fault(float* x) { asm("trap;"); }',
    "endless kernel": 'extern "C" __global__ void fault(volatile float* x) '
    "{ while (x[0] >= 0.0f) {} }",
}
MESSAGES = {
    "illegal access": "CUDA error: an illegal memory access was encountered",
    "trap": "CUDA error: unspecified launch failure",
    "device assert": "CUDA error: device-side assert triggered",
}
# torch's words for a broken memory cell, which no program can make at will
ECC = "CUDA error: uncorrectable ECC error encountered"
FAULTS = (
    *KERNELS,
    "device assert",
    "ecc",
    "out of memory",
    "fills the card",
    "endless step",
    "segmentation fault",
    "exit",
    "kept memory",
)


def build(
    *,
    fault: str = "",
    only_chunked: bool = False,
    loss_chunks: int = 1,
    optimizer_in_backward: bool = False,
):
    """The fault comes in the third step; with `only_chunked` not where the loss is whole.

    The last two knobs are settings that tune tries, one after the other. They do nothing else.
    """
    if only_chunked and loss_chunks == 1:
        fault = ""
    torch.manual_seed(0)
    model = torch.nn.Linear(256, 256, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(64, 256, device="cuda")
    done = 0

    def step():
        nonlocal done
        done += 1
        if done == 3:
            go_wrong(fault, x)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def model(*, fault: str = ""):
    """For bench: bytes in, logits out."""
    return _Model(fault)


class _Model(torch.nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, self.num_calls = fault, 0
        self.embedding = torch.nn.Embedding(256, 32)
        self.head = torch.nn.Linear(32, 256)

    def forward(self, tokens):
        self.num_calls += 1
        if self.num_calls == 3:
            go_wrong(self.fault, self.head.weight)
        return self.head(self.embedding(tokens))


def go_wrong(fault: str, x: torch.Tensor) -> None:
    if not fault:
        return
    if fault == "ecc":
        raise RuntimeError(ECC)
    if fault == "out of memory":
        _out_of_memory(x)
    elif fault == "fills the card":
        kept = []
        while True:
            kept.append(torch.empty(1 << 30, dtype=torch.uint8, device=x.device))
            if not x.is_cuda and len(kept) > 3:
                _out_of_memory(x)
    elif fault == "endless step":
        time.sleep(3600)
    elif fault == "segmentation fault":
        ctypes.string_at(0)
    elif fault == "exit":
        os._exit(7)
    elif fault == "kept memory":
        _leave_a_child(x)
    else:
        _gpu_fault(fault, x)


def _out_of_memory(x: torch.Tensor) -> None:
    if x.is_cuda:
        torch.empty(1 << 46, dtype=torch.uint8, device=x.device)
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 TiB.")


def _leave_a_child(x: torch.Tensor) -> None:
    """A program of its own session that holds memory of the GPU; then the step dies."""
    code = "import time, torch; "
    code += "kept = torch.ones(1 << 28, device='cuda'); " if x.is_cuda else ""
    subprocess.Popen(
        [sys.executable, "-c", f"{code}print('kept', flush=True); time.sleep(3600)"],
        start_new_session=True,
        stdout=subprocess.PIPE,
    ).stdout.readline()
    raise RuntimeError("the step failed, and its child is still there")


def _gpu_fault(fault: str, x: torch.Tensor) -> None:
    if not x.is_cuda:
        if fault == "endless kernel":
            time.sleep(3600)
        raise RuntimeError(MESSAGES[fault])
    if fault == "device assert":
        x[torch.full((4,), 1 << 20, device=x.device)].sum()
    else:
        # torch's own way to compile a kernel: it needs no compiler on the machine
        kernel = torch.cuda._compile_kernel(KERNELS[fault], "fault")
        zeros = torch.zeros(1, device=x.device)
        kernel((1, 1, 1), (1, 1, 1), (zeros,))
    torch.cuda.synchronize()
