"""Facts about the installed torch, from a process of its own. Starts no CUDA."""

from collections.abc import Callable
from typing import Any


def facts(_request: None, _tell: Callable[[Any], None]) -> dict[str, Any]:
    """The task: fields of `Machine`."""
    import torch

    triton, problem = _triton()
    return {
        "torch_version": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "cudnn": _answer(torch.backends.cudnn.version),
        "cuda_available": _answer(torch.cuda.is_available),
        "architectures": _answer(lambda: (torch._C._cuda_getArchFlags() or "").split()) or [],
        "triton": triton,
        "triton_error": problem,
    }


def _triton() -> tuple[str | None, str | None]:
    """Its version, and why it cannot be imported."""
    try:
        import triton
    except Exception as error:  # a version for another torch may fail in any way
        return None, f"{type(error).__name__}: {error}"
    return triton.__version__, None


def _answer(question: Callable[[], Any]) -> Any:
    """torch's answer. None if it cannot say: a build without CUDA raises for some questions."""
    try:
        return question()
    except Exception:
        return None
