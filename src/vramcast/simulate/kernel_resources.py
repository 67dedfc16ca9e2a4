"""What a Triton kernel takes of a multiprocessor. Compiling it for a GPU does not need that GPU."""

import re
from typing import Any, NamedTuple

# in its machine code: the attribute's number, its length, which kernel, how many
REGISTERS = re.compile(rb"\x04\x2f\x08\0.{4}(.{4})", re.DOTALL)


class Resources(NamedTuple):
    registers: int | None  # per thread
    shared_bytes: int


def resources_of(kernel: Any, config: Any) -> Resources | None:
    """None where the installed compiler refuses the kernel."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    meta = kernel._create_compile_meta(config)
    source = ASTSource(kernel.fn, meta["signature"], meta["constants"], meta["configs"][0])
    target = GPUTarget("cuda", meta["cc"], 32)
    options = kernel._create_compile_options(config, meta)
    try:
        return resources_in(triton.compile(source, target=target, options=options))
    except Exception:  # Triton's own, LLVM's and ptxas' errors have no class in common
        return None


def resources_in(compiled: Any) -> Resources:
    return Resources(registers_in(compiled.asm["cubin"]), compiled.metadata.shared)


def registers_in(cubin: bytes) -> int | None:
    found = REGISTERS.search(cubin)
    return int.from_bytes(found[1], "little") if found else None
