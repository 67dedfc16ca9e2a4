"""From the text of an error to its likely cause and what to do, and to the memory it lacked."""

from __future__ import annotations

import re

# A pattern of the error in lower case, and the likely cause. The first match counts.
CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"nvcc.*permission|permission.*nvcc",
        "nvcc may not be executed: under WSL, /mnt disks are mounted without that right; "
        "install CUDA inside Linux",
    ),
    (
        r"triton.*(windows|win32)|windows.*triton",
        "Triton has no release for Windows: use Linux or WSL2 with its own CUDA",
    ),
    (
        r"cannot find a working triton|no module named 'triton'|triton.*not (installed|found)",
        "Triton is missing: it comes with CUDA builds of torch for Linux, or pip install triton",
    ),
    (
        r"invalidcxxcompiler|failed to find c compiler|no working c\+\+ compiler"
        r"|(gcc|g\+\+|cc|clang)['\"]?:? (command )?not found|no such file.*'(gcc|cc|g\+\+)'",
        "there is no C compiler: install gcc or clang, or set CC",
    ),
    (
        r"python\.h: no such file",
        "Python's header files are missing: install python3-dev (Triton compiles a C module)",
    ),
    (
        r"capture.*(random|generator|seed|offset)|(current_seed|philox|rng state).*capture",
        "the step reads the state of the random numbers (checkpointing does), "
        "which a graph cannot capture",
    ),
    (
        r"operation not permitted when stream is capturing"
        r"|stream ?capture(unsupported|invalidated|_?implicit)?|cudaerrorstreamcapture",
        "the step waits for the GPU (.item(), .cpu(), a print, a scaler's check), "
        "which a graph cannot capture",
    ),
    (
        r"overwritten by a subsequent run",
        "a tensor of one replay is used after the next: clone it, or mark steps with "
        "torch.compiler.cudagraph_mark_step_begin()",
    ),
    (
        r"no available kernel|no viable backend|invalid backend",
        "no attention kernel takes these tensors: flash and cuDNN take 16-bit floats only, "
        "and few masks",
    ),
    (
        r"computes in bfloat16 or float16, not in",
        "the kernel is for 16-bit floats: it works only together with such a precision",
    ),
    (r"needs the package (\S+?):", "a package is not installed"),
    (
        r"recompile_limit|cache_size_limit|fail_on_recompile",
        "torch.compile compiles again and again: something in the step changes every time",
    ),
    (
        r"torch\._dynamo\.exc|unsupported:|graph break|torchdynamo",
        "torch.compile does not understand something in the step",
    ),
    (
        r"torch\._inductor|inductorerror|loweringexception|backendcompilerfailed",
        "torch.compile's code generator failed: try a newer torch, or another mode",
    ),
    (
        r"compute capability|no kernel image|not supported on|sm_\d+ is not",
        "this GPU, or this build of torch for it, does not have what is asked for",
    ),
    (
        r"shared memory|outofresources",
        "a kernel needs more shared memory than the GPU has: another tile size would do",
    ),
    (
        r"shapes? .*(cannot|mismatch|must|not)|invalid (shape|for input of size)|size mismatch"
        r"|size of tensor|expected .* dim|must match",
        "sizes do not go together: this way of computing needs other shapes",
    ),
    (
        r"illegal memory access|misaligned address|device-side assert",
        "a kernel went wrong on the GPU: with CUDA_LAUNCH_BLOCKING=1 the error names its line",
    ),
    (
        r"did not end within|made no progress",
        "it hangs, or takes far longer to start than it is given",
    ),
    (r"sigkill", "the kernel killed the process: the machine's own memory may have run out"),
    (
        r"sigsegv|segmentation fault",
        "native code crashed: a library built for another version of torch or CUDA does that",
    ),
)

_SIZE = r"([0-9.]+) (bytes|[kmgt]ib)"
_UNITS = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def likely_cause(error: str | None) -> str:
    """Empty if nothing is recognised. A traceback's indented lines of code are not searched."""
    lines = [line for line in (error or "").splitlines() if not line.startswith("  ")]
    text = "\n".join(lines).lower()
    return next((cause for pattern, cause in CAUSES if re.search(pattern, text, re.DOTALL)), "")


def missing_bytes_of(error: str | None) -> int | None:
    """What an out-of-memory error asked for, less what the GPU or the limit still had."""
    asked = _bytes(rf"tried to allocate {_SIZE}", error)
    free = _bytes(rf"of which {_SIZE} is free", error)
    if asked is None or free is None:
        return asked
    allowed = _bytes(rf"{_SIZE} allowed;", error)
    allocated = _bytes(rf"{_SIZE} is allocated by pytorch", error)
    cached = _bytes(rf"{_SIZE} is reserved by pytorch", error)
    if allowed is not None and allocated is not None and cached is not None:
        free = min(free, allowed - allocated - cached)
    return max(1, asked - max(0, free))


def _bytes(pattern: str, error: str | None) -> int | None:
    match = re.search(pattern, error or "", re.IGNORECASE)
    return round(float(match[1]) * _UNITS[match[2].lower()]) if match else None
