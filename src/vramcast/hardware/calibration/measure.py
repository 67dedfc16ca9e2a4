"""The task that measures a calibration table on this machine's GPU."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from vramcast.hardware import nvml
from vramcast.hardware.calibration.table import architecture_of, parse_convolution_key
from vramcast.hardware.nvml import UsedMemory

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def outside_bytes(memory: UsedMemory) -> tuple[int, int]:
    """The memory outside the allocator: of this process, and on the whole GPU."""
    torch.cuda.synchronize()
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    reserved, on_device = torch.cuda.memory_reserved(), memory.of_device(uuid)
    of_process, _ = memory.of_process(uuid) or (on_device, None)
    return of_process - reserved, on_device - reserved


def allocator_actions(call: Callable[[], Any]) -> list[tuple[str, int]]:
    """The allocator's actions during a call, each with its bytes: 0 where an older block is freed.
    The result is freed afterwards."""
    record = torch.cuda.memory._record_memory_history
    record(enabled="all", context=None, stacks="python", max_entries=1_000_000, clear_history=True)
    result = call()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    record(enabled=None)
    del result
    sizes: dict[int, int] = {}
    actions = []
    for entry in trace:
        action, address, size = entry["action"], entry["addr"], entry["size"]
        if action == "alloc":
            sizes[address] = size
        actions.append((action, sizes.pop(address, 0) if action == "free_completed" else size))
    return actions


def allocations_of(call: Callable[[], Any]) -> list[int]:
    """The sizes in order: positive if allocated, negative if freed, 0 for older blocks."""
    signs = {"alloc": 1, "free_completed": -1}
    return [signs[name] * size for name, size in allocator_actions(call) if name in signs]


def gemm_workspaces() -> tuple[int, int]:
    """The workspaces of cuBLAS and cuBLASLt: what a thread's first product takes beyond its
    result."""
    x = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(256, device="cuda", dtype=torch.bfloat16)
    result_bytes = x.nbytes

    def beyond(call: Callable[[], Any]) -> int:
        return max([0, *(size for size in allocations_of(call) if size != result_bytes)])

    return beyond(lambda: x @ x), beyond(lambda: F.linear(x, x, bias))


def convolution_workspaces(key: str) -> list[int]:
    """The workspaces of the forward pass and both gradients. Each is run a second time, when cuDNN
    has chosen its kernel."""
    c = parse_convolution_key(key)
    is_last = c["channels_last"] and len(c["x"]) == 4
    layout = torch.channels_last if is_last else torch.contiguous_format
    x, weight = (
        torch.randn(c[name], device="cuda", dtype=DTYPES[c["dtype"]]).to(memory_format=layout)
        for name in ("x", "weight")
    )
    stride, no_output_padding = c["stride"], [0] * len(c["stride"])
    geometry = (stride, c["padding"], c["dilation"], False, no_output_padding, c["groups"])
    forward = partial(torch.ops.aten.convolution, x, weight, None, *geometry)
    grad = torch.randn_like(forward())
    backward = partial(torch.ops.aten.convolution_backward, grad, x, weight, None, *geometry)
    gradients = [partial(backward, [is_of_x, not is_of_x, False]) for is_of_x in (True, False)]
    found = []
    for call in (forward, *gradients):
        call()
        found.append(-min([0, *allocations_of(call)]))
    return found


def train_once() -> None:
    """Trains a step with the kernels that every training has, without flash attention or cuDNN."""
    model = torch.nn.Sequential(
        torch.nn.Embedding(1000, 256), torch.nn.LayerNorm(256), torch.nn.Linear(256, 1000)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 1000, (4, 128), device="cuda")
    for _ in range(2):
        F.cross_entropy(F.gelu(model(tokens)).flatten(0, 1), tokens.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def use_libraries() -> None:
    q = torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    convolution_workspaces("bf16 nchw x8,16,32,32 w32,16,3,3 s1,1 p1,1 d1,1 g1")


def table(keys: list[str], tell: Callable[[int], None]) -> dict[str, Any]:
    """The table, with the convolutions of these keys. `tell` is called with how many are done."""
    memory = UsedMemory()  # before CUDA starts
    torch.zeros(1, device="cuda")
    gemm, gemm_lt = gemm_workspaces()
    train_once()
    of_process, on_device = outside_bytes(memory)
    use_libraries()
    with_libraries, _ = outside_bytes(memory)
    torch.linalg.qr(torch.randn(64, 64, device="cuda"))
    with_solver, _ = outside_bytes(memory)
    convolutions: dict[str, list[int]] = {}
    for number, key in enumerate(keys):
        try:
            convolutions[key] = convolution_workspaces(key)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()  # too large for this GPU, so it needs no entry
        if number % 20 == 0:
            tell(number)
            torch.cuda.empty_cache()
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "architecture": architecture_of((properties.major, properties.minor)),
        "torch_version": torch.__version__,
        "cuda_version": torch.version.cuda,
        "cudnn_version": torch.backends.cudnn.version() or 0,
        "driver_version": nvml.gpu_states()[0].driver_version,
        "process_bytes": of_process,
        "device_bytes": on_device,
        "libraries_bytes": with_libraries - of_process,
        "solver_bytes": with_solver - with_libraries,
        "gemm_workspace_bytes": gemm,
        "gemm_lt_workspace_bytes": gemm_lt,
        "convolutions": convolutions,
    }
