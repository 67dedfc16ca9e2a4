"""cuBLAS and cuBLASLt workspaces by GPU architecture, as torch 2.10 to 2.13 take them."""

from __future__ import annotations

import os

from vramcast.errors import UsageError
from vramcast.records.calibration import Calibration

DEFAULT_BYTES = 8_519_680  # :4096:2:16:8
HOPPER_BYTES = 32 << 20
LT_BYTES = 1 << 20


def gemm_workspaces(
    capability: tuple[int, int], calibration: Calibration | None
) -> tuple[int, int]:
    """Bytes of cuBLAS and of cuBLASLt for each thread that multiplies matrices.

    They are what the environment variables say that torch reads, else calibrated, else the default.
    """
    default = HOPPER_BYTES if capability[0] in (9, 10, 12) else DEFAULT_BYTES
    plain = calibration.gemm_workspace_bytes if calibration else default
    lt = calibration.gemm_lt_workspace_bytes if calibration else LT_BYTES
    config = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    lt_kib = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "")
    return _parse(config) if config else plain, int(lt_kib) * 1024 if lt_kib.isdigit() else lt


def _parse(config: str) -> int:
    """Pairs of a size in KiB and a count, as :4096:2:16:8."""
    try:
        numbers = [int(part) for part in config.split(":") if part]
        return sum(
            kib * 1024 * count for kib, count in zip(numbers[::2], numbers[1::2], strict=True)
        )
    except ValueError:
        raise UsageError(
            f"CUBLAS_WORKSPACE_CONFIG is {config!r}, not pairs of numbers.",
            "Write it as :4096:2:16:8 or unset it.",
        ) from None
