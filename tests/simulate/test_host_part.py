"""The host code of a CUDA source: what g++ gets to compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from vramcast.simulate.extensions.host_part import PRELUDE, host_part

KERNEL = """
template <typename T>
__global__ void __launch_bounds__(256, 2) scale(const T* x, T* y, int n) {
  __shared__ T tile[32];
  if (threadIdx.x < n) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
}
"""


def host_code(folder: Path, text: str, **headers: str) -> str:
    """What is left of a source, in one line."""
    for name, header in headers.items():
        (folder / f"{name}.cuh").write_text(header)
    source = folder / "source.cu"
    source.write_text(text)
    found = host_part(source, [])
    assert found.startswith(PRELUDE)
    return " ".join(found.removeprefix(PRELUDE).split())


def test_a_kernel_keeps_its_head_and_loses_its_body(tmp_path: Path) -> None:
    found = host_code(tmp_path, KERNEL)
    assert found.startswith("template <typename T> __global__ void")
    assert found.endswith("(const T* x, T* y, int n) { }")


def test_a_launch_is_a_call(tmp_path: Path) -> None:
    text = "void f() { scale<float><<<dim3(1, 2), 256, 0, stream>>>(x, y, 3); }"
    assert host_code(tmp_path, text) == "void f() { scale<float>(x, y, 3); }"


@pytest.mark.parametrize(
    "function",
    [
        "__device__ float twice(float x) { return 2 * x; }",
        "template <typename T> __device__ __forceinline__ T twice(T x) { return {x}; }",
        "static __device__ int seen(int);",
    ],
)
def test_functions_of_the_gpu_alone_are_left_out(tmp_path: Path, function: str) -> None:
    assert host_code(tmp_path, f"int before; {function} int after;") == "int before; int after;"


@pytest.mark.parametrize(
    "kept",
    [
        "__host__ __device__ int both(int x) { return x; }",
        "__device__ float table[3];",
        '#define TEXT "__device__ f() {"',
    ],
)
def test_what_the_host_has_too_stays(tmp_path: Path, kept: str) -> None:
    assert host_code(tmp_path, kept) == kept


def test_members_of_a_class_that_only_the_gpu_calls_are_left_out(tmp_path: Path) -> None:
    text = "class A { public: __device__ float operator()(int i) const { return i; } int n; };"
    assert host_code(tmp_path, text) == "class A { public: int n; };"


def test_comments_and_text_in_quotes_are_no_code(tmp_path: Path) -> None:
    text = 'void f() { /* k<<<1, 1>>>( */ print("}"); // {\n g(); }'
    assert host_code(tmp_path, text) == 'void f() { print("}"); g(); }'


def test_headers_with_kernels_stand_in_place_of_their_includes_once(tmp_path: Path) -> None:
    text = '#include "own.cuh"\n#include "own.cuh"\n#include <vector>\nint n;'
    found = host_code(tmp_path, text, own=KERNEL)
    assert found.count("scale") == 1
    assert found.endswith("#include <vector> int n;")


@pytest.mark.parametrize("cut", ["__global__ void k(int n) { if (n) {", "__device__ int f(int"])
def test_a_source_that_was_cut_short_is_left_for_the_compiler_to_refuse(
    tmp_path: Path, cut: str
) -> None:
    assert host_code(tmp_path, cut) == cut


def test_errors_name_the_line_of_the_source(tmp_path: Path) -> None:
    source = tmp_path / "source.cu"
    source.write_text(KERNEL + "int wrong;")
    line = KERNEL.count("\n") + 1
    assert host_part(source, []).splitlines()[line] == "int wrong;"
