"""cuBLAS and cuBLASLt workspaces by GPU architecture and torch version.

Read in torch's sources and CUDA builds, 2.10 to 2.15:
up to 2.11 a thread keeps one of cuBLAS and one of cuBLASLt from its first product on;
from 2.12 on they share that of cuBLAS; from 2.15 on each product takes its own and gives it back.
"""

import os

from vramcast.errors import UsageError
from vramcast.hardware.calibration.table import minor_version
from vramcast.records.calibration import Calibration

DEFAULT_BYTES = 8_519_680  # :4096:2:16:8
LARGE_BYTES = 32 << 20
LT_BYTES = 1 << 20
# from this torch version on, GPUs with these major compute capabilities get the large workspace
LARGE_SINCE = (((2, 10), (9,)), ((2, 12), (10, 12)), ((2, 14), (11,)))
SHARED_SINCE, GIVEN_BACK_SINCE = (2, 12), (2, 15)
SHARE, KEEP = "TORCH_CUBLASLT_UNIFIED_WORKSPACE", "TORCH_CUBLAS_WORKSPACE_CACHE"


def gemm_workspaces(
    capability: tuple[int, int], calibration: Calibration | None, torch_version: str
) -> tuple[int, int, bool]:
    """Bytes of cuBLAS and cuBLASLt, and whether a thread keeps them after its first product.

    They come from the environment variables that torch reads, else from calibration, else from the
    defaults.
    """
    version = minor_version(torch_version)
    is_large = any(version >= since and capability[0] in gpus for since, gpus in LARGE_SINCE)
    plain = LARGE_BYTES if is_large else DEFAULT_BYTES
    lt = LT_BYTES
    if calibration:
        plain = calibration.gemm_workspace_bytes
        # 0 if it was measured while it was shared
        lt = calibration.gemm_lt_workspace_bytes or LT_BYTES
    plain = configured(plain)
    if (lt_kib := os.environ.get("CUBLASLT_WORKSPACE_SIZE", "")).isdigit():
        lt = int(lt_kib) * 1024
    are_kept = version < GIVEN_BACK_SINCE or os.environ.get(KEEP) == "1"
    are_shared = are_kept and os.environ.get(SHARE, str(int(version >= SHARED_SINCE))) == "1"
    return plain, 0 if are_shared else lt, are_kept


def as_taken_by(torch_version: str) -> dict[str, str]:
    """Environment variables with which a newer torch takes workspaces like this one."""
    version = minor_version(torch_version)
    if version >= GIVEN_BACK_SINCE:
        return {}
    return {KEEP: "1", SHARE: str(int(version >= SHARED_SINCE))}


def configured(otherwise: int) -> int:
    """The bytes that CUBLAS_WORKSPACE_CONFIG asks for, in pairs of a size in KiB and a count, such
    as :4096:2:16:8. torch and cuBLAS each take this much."""
    config = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    if not config:
        return otherwise
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
