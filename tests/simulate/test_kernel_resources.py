"""What a kernel takes of a multiprocessor is read from what Triton's compiler makes of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vramcast.simulate.kernel_resources import registers_in

PROGRAM = """
import json

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from vramcast.simulate.kernel_resources import resources_in


@triton.jit
def sum_of_row(x, y, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    values = tl.load(x + places)
    tl.store(y + places, values / tl.sum(values, 0))


def resources(block):
    signature = {"x": "*fp32", "y": "*fp32", "BLOCK": "constexpr"}
    source = ASTSource(sum_of_row, signature, {"BLOCK": block})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    return resources_in(made)


print(json.dumps([resources(64), resources(4096)]))
"""


@pytest.mark.long
def test_the_compiler_that_is_installed_tells_what_a_kernel_takes(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    program = tmp_path / "registers.py"
    program.write_text(PROGRAM)
    # In a process of its own: tests of kernels interpret them, and Triton then stays as it is.
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    ended = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    (few, few_bytes), (many, many_bytes) = json.loads(ended.stdout)
    assert few < 32 < many
    assert 0 < few_bytes <= many_bytes < 1024  # numbers of the warps, to be added up


def test_what_is_no_kernel_tells_no_registers() -> None:
    assert registers_in(b"") is None
