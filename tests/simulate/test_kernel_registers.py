"""How many registers a kernel takes is read from what Triton's compiler makes of it."""

import runpy
from pathlib import Path

import pytest

from vramcast.simulate.kernel_registers import registers_in

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def sum_of_row(x, y, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    values = tl.load(x + places)
    tl.store(y + places, values / tl.sum(values, 0))
"""


def test_the_compiler_that_is_installed_tells_the_registers_of_a_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton = pytest.importorskip("triton")
    # tests of kernels interpret them
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    (tmp_path / "kernel.py").write_text(KERNEL)
    kernel = runpy.run_path(str(tmp_path / "kernel.py"))["sum_of_row"]
    signature = {"x": "*fp32", "y": "*fp32", "BLOCK": "constexpr"}

    def registers(block: int) -> int | None:
        source = ASTSource(kernel, signature, {"BLOCK": block})
        target = GPUTarget("cuda", 90, 32)
        return registers_in(
            triton.compile(source, target=target, options={"num_warps": 1}).asm["cubin"]
        )

    few, many = registers(64), registers(4096)
    assert few is not None and many is not None and few < 32 < many
    assert registers_in(b"") is None
