"""Trains with a kernel of its own, which it compiles when it starts."""

from pathlib import Path

import torch
from torch.utils.cpp_extension import load

HERE = Path(__file__).parent
load(
    name="own_kernels",
    sources=[HERE / "kernels.cu"],
    extra_cuda_cflags=["-O3", "--use_fast_math", "-DROWS=1024"],
    is_python_module=False,
)
print(f"{torch.ops.own_kernels.multiprocessors()} multiprocessors")
weight = torch.nn.Parameter(torch.zeros(1024, 1024, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(6):
    x = torch.randn(8, 1024, device="cuda")
    y = torch.ops.own_kernels.twice(x)  # 4 MiB, whatever x has
    (y @ weight).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
