"""How many registers a Triton kernel takes. Compiling it for a GPU does not need that GPU."""

import re
from typing import Any

# in its machine code: the attribute's number, its length, which kernel, how many
REGISTERS = re.compile(rb"\x04\x2f\x08\0.{4}(.{4})", re.DOTALL)


def registers_of(kernel: Any, config: Any) -> int | None:
    """The registers per thread. None where the installed compiler refuses the kernel."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    meta = kernel._create_compile_meta(config)
    source = ASTSource(kernel.fn, meta["signature"], meta["constants"], meta["configs"][0])
    target = GPUTarget("cuda", meta["cc"], 32)
    options = kernel._create_compile_options(config, meta)
    try:
        return registers_in(triton.compile(source, target=target, options=options).asm["cubin"])
    except Exception:  # Triton's own, LLVM's and ptxas' errors have no class in common
        return None


def registers_in(cubin: bytes) -> int | None:
    found = REGISTERS.search(cubin)
    return int.from_bytes(found[1], "little") if found else None
