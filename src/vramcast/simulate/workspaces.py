"""cuBLAS and cuBLASLt workspaces by GPU architecture, as torch 2.10 to 2.13 take them."""

from __future__ import annotations

import os

from vramcast.errors import UsageError

DEFAULT_BYTES = 8_519_680  # :4096:2:16:8
HOPPER_BYTES = 32 << 20
LT_BYTES = 1 << 20


def gemm_workspaces(
    capability: tuple[int, int], measured: tuple[int, int] | None = None
) -> tuple[int, int]:
    """(cuBLAS, cuBLASLt) bytes per thread that multiplies matrices: by the environment variables torch reads, as calibrated, or the default."""
    default = HOPPER_BYTES if capability[0] in (9, 10, 12) else DEFAULT_BYTES
    plain, lt = measured or (default, LT_BYTES)
    return _from_config(os.environ.get("CUBLAS_WORKSPACE_CONFIG"), plain), _lt_from_environment(lt)


def _from_config(config: str | None, default: int) -> int:
    if not config:
        return default
    try:
        numbers = [int(part) for part in config.split(":") if part]
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        return sum(kib * 1024 * count for kib, count in pairs)
    except ValueError:
        raise UsageError(
            f"CUBLAS_WORKSPACE_CONFIG is {config!r}, not pairs of numbers.",
            "Write it as :4096:2:16:8 or unset it.",
        ) from None


def _lt_from_environment(default: int) -> int:
    text = os.environ.get("CUBLASLT_WORKSPACE_SIZE")
    return int(text) * 1024 if text and text.isdigit() else default
