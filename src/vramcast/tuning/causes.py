"""From the text of an error to its likely cause and what to do. Pure."""

from __future__ import annotations

import re

# (what the text holds, the likely cause); the first that is found
CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"nvcc.*permission|permission.*nvcc",
        "nvcc may not be executed: under WSL, /mnt disks are mounted without that right; install CUDA inside Linux",
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
        r"invalidcxxcompiler|failed to find c compiler|no working c\+\+ compiler|(gcc|g\+\+|cc|clang)['\"]?:? (command )?not found|no such file.*'(gcc|cc|g\+\+)'",
        "there is no C compiler: install gcc or clang, or set CC",
    ),
    (
        r"python\.h: no such file",
        "Python's header files are missing: install python3-dev (Triton compiles a small C module)",
    ),
    (
        r"capture.*(random|generator|seed|offset)|(current_seed|philox|rng state).*capture",
        "the step reads the state of the random numbers (checkpointing does), which a graph cannot capture",
    ),
    (
        r"operation not permitted when stream is capturing|stream ?capture(unsupported|invalidated|_?implicit)?|cudaerrorstreamcapture",
        "the step waits for the GPU (.item(), .cpu(), a print, a scaler's check), which a graph cannot capture",
    ),
    (
        r"overwritten by a subsequent run",
        "a tensor of one replay is used after the next: clone it, or mark steps with torch.compiler.cudagraph_mark_step_begin()",
    ),
    (
        r"no available kernel|no viable backend|invalid backend",
        "no attention kernel takes these tensors: flash and cuDNN take 16-bit floats only, and few masks",
    ),
    (
        r"computes in bfloat16 or float16, not in",
        "the kernel is for 16-bit floats: it can be had only together with such a precision",
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
        "torch.compile's code generator failed: a newer torch, or another mode, may do",
    ),
    (
        r"compute capability|no kernel image|not supported on|sm_\d+ is not",
        "this GPU, or this build of torch for it, does not have what is asked for",
    ),
    (
        r"shared memory|outofresources",
        "a kernel wants more shared memory than the GPU has: another tile size would do",
    ),
    (
        r"shapes? .*(cannot|mismatch|must|not)|invalid (shape|for input of size)|size mismatch|size of tensor|expected .* dim|must match",
        "sizes do not go together: this way of computing asks for other shapes",
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


def likely_cause(error: str | None) -> str:
    """Empty where nothing is recognised: no guess. A traceback's lines of code, which are indented, say nothing of what went wrong."""
    text = "\n".join(
        line for line in (error or "").splitlines() if not line.startswith("  ")
    ).lower()
    return next((cause for pattern, cause in CAUSES if re.search(pattern, text, re.DOTALL)), "")


_SIZE = r"([0-9.]+) (bytes|[kmgt]ib)"
_ASKED, _FREE = (
    re.compile(rf"tried to allocate {_SIZE}", re.IGNORECASE),
    re.compile(rf"of which {_SIZE} is free", re.IGNORECASE),
)
_ALLOWED = re.compile(rf"{_SIZE} allowed;", re.IGNORECASE)
_ALLOCATED, _CACHED = (
    re.compile(rf"{_SIZE} is {how} by pytorch", re.IGNORECASE) for how in ("allocated", "reserved")
)
_UNITS = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def missing_bytes_of(error: str | None) -> int | None:
    """Of an out-of-memory error, at least: what was asked for, less what the driver or the cap still had. All of it where that is not said."""
    asked, free = _bytes(_ASKED, error), _bytes(_FREE, error)
    if asked is None or free is None:
        return asked
    allowed, allocated, cached = (
        _bytes(pattern, error) for pattern in (_ALLOWED, _ALLOCATED, _CACHED)
    )
    if allowed is not None and allocated is not None and cached is not None:
        free = min(free, allowed - allocated - cached)
    return max(1, asked - max(0, free))


def _bytes(pattern: re.Pattern[str], error: str | None) -> int | None:
    match = pattern.search(error or "")
    return round(float(match[1]) * _UNITS[match[2].lower()]) if match else None
