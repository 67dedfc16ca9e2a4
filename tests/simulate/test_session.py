"""A run ends with what the user did wrong; other threads of the program do not slow it."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from waiting import PATIENCE_SECONDS

import vramcast
from vramcast.errors import WorkloadError

WORKLOADS = Path(__file__).parent / "workloads.py"


@pytest.mark.usefixtures("warm_simulations")
def test_the_users_error_is_shown_although_the_model_cannot_be_described() -> None:
    with pytest.raises(WorkloadError, match="the user's mistake, with 64 weights"):
        vramcast.predict(f"{WORKLOADS}:fails_with_a_half_built_model", gpu="h200")


@pytest.mark.usefixtures("warm_simulations")
def test_an_error_that_is_no_exception_names_the_users_line() -> None:
    with pytest.raises(
        WorkloadError, match=r"build failed\.\n.*in interrupts_itself.*\nKeyboardInt"
    ):
        vramcast.predict(f"{WORKLOADS}:interrupts_itself", gpu="h200")


@pytest.mark.usefixtures("warm_simulations")
def test_a_model_that_the_step_drops_is_freed() -> None:
    """A weight, its gradient and two states of 4 MiB, temporaries and cuBLAS, of one model."""
    prediction = vramcast.predict(f"{WORKLOADS}:makes_a_model_in_every_step", gpu="h200")
    assert prediction.peak_allocated_bytes < 2 * (33 << 20) + 6 * (4 << 20)


@pytest.mark.usefixtures("warm_simulations")
def test_a_step_whose_layers_are_drawn_runs_longer() -> None:
    prediction = vramcast.predict(f"{WORKLOADS}:leaves_out_layers", gpu="h200")
    assert prediction.peak_allocated_bytes > 64 << 20, "the sixth step has most of them"


@pytest.mark.usefixtures("warm_simulations")
def test_what_other_streams_use_adds_up_until_the_host_is_as_far_ahead_as_it_can_be() -> None:
    """Some 30 steps here, with 4 MiB each. On an H200 such a loop grew for 70 steps."""
    ahead, waiting = (
        vramcast.predict(f"{WORKLOADS}:fetches_on_another_stream", gpu="h200", waits=waits)
        for waits in (False, True)
    )
    assert waiting.peak_reserved_bytes == waiting.peak_reserved_bytes_low
    added = ahead.peak_reserved_bytes - waiting.peak_reserved_bytes
    assert 25 * (4 << 20) < added < 40 * (4 << 20)
    assert ahead.peak_reserved_bytes <= ahead.peak_reserved_bytes_high


INTERPRETED = """
import os
import torch

def build():
    assert os.environ.get("TRITON_INTERPRET") != "1"
    return lambda: torch.ones(1024, device="cuda")
"""


def test_kernels_of_triton_are_not_interpreted_where_the_user_asked_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minutes would pass for a step of which nothing is computed."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    (tmp_path / "work.py").write_text(INTERPRETED)
    assert vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200").peak_allocated_bytes > 0


AT_THE_TOP = """
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
weight = torch.nn.Linear(1024, 1024).to(device)

def build():
    x = torch.ones(4096, 1024, device=device)
    update = torch.optim.SGD(weight.parameters())

    def step():
        weight(x).sum().backward()
        update.step()
        update.zero_grad()

    return step
"""


@pytest.mark.usefixtures("warm_simulations")
def test_a_file_is_imported_with_the_gpu_and_what_it_puts_there_is_counted(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(AT_THE_TOP)
    prediction = vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200")
    assert prediction.num_parameters == 1024 * 1025
    assert prediction.breakdown_bytes["parameters"] == (1024 + 1) * 1024 * 4


PROGRAM = """
import os

from vramcast.hardware.gpus import find_gpu
from vramcast.simulate import device
from vramcast.simulate.session import Session

session = Session(device.Device(), find_gpu("h200"))
import torch

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"  # as programs do that want to be repeatable
with session.recording() as recording:
    weight = torch.zeros(1024, 1024).cuda().requires_grad_()
    for _ in range(2):
        recording.mark_step()
        (weight * 2).sum().backward()
    _ = weight.detach()[:8, :8] @ weight.detach()[:8, :8]
    trace = recording.describe()
print(trace.events.tolist().count(0), [size for size in trace.sizes.tolist() if size == 4 << 20])
print(trace.allocation(trace.events[trace.starts.kernel]).op.partition(".")[0])
print(trace.starts.cublas_bytes, trace.sizes.tolist().count(128 << 10))
"""


def test_any_program_can_be_recorded_with_a_mark_for_each_step() -> None:
    """4 MiB each: the weight, and in both steps the product and the weight's gradient. The weight
    is a copy, and the first kernel multiplies it. torch and cuBLAS take what the variable says."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout == f"2 {[4 << 20] * 5}\naten::mul\n131072 1\n"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How often the end of a backward pass was waited for. Two are the fewest there can be."""
    from vramcast.simulate.patches import backward_threads

    made: list[float] = []
    instead = SimpleNamespace(monotonic=time.monotonic, sleep=made.append)
    monkeypatch.setattr(backward_threads, "time", instead)
    return made


def test_a_busy_thread_of_the_program_does_not_delay_the_end_of_a_backward_pass(
    pauses: list[float],
) -> None:
    from vramcast.simulate.patches.backward_threads import wait_until_idle

    is_busy, done = threading.Event(), threading.Event()

    def be_busy() -> None:
        data = bytes(16 << 20)
        while not done.is_set():
            is_busy.set()
            hashlib.sha256(data)  # runs without Python's global lock

    thread = threading.Thread(target=be_busy)
    thread.start()
    try:
        assert is_busy.wait(PATIENCE_SECONDS)
        wait_until_idle()
    finally:
        done.set()
        thread.join()
    assert len(pauses) == 2


def test_a_backward_pass_inside_another_does_not_wait_for_its_own_thread(
    pauses: list[float],
) -> None:
    """Checkpointing and losses in chunks begin one on autograd's own thread."""
    from vramcast.simulate.patches.backward_threads import THREAD_NAME, wait_until_idle

    set_thread_name = 15

    def as_autograd() -> None:
        ctypes.CDLL(None).prctl(set_thread_name, f"{THREAD_NAME}_0".encode())
        wait_until_idle()

    thread = threading.Thread(target=as_autograd)
    thread.start()
    thread.join()
    assert len(pauses) == 2


ASKS_FOR_PROPERTIES = """
import torch

def build():
    properties = torch.cuda.get_device_properties(0)
    # torch._dynamo keeps constants by type and hash
    assert type(properties) is torch.cuda._CudaDeviceProperties and hash(properties)
    return lambda: torch.ones(properties.multi_processor_count, device="cuda")
"""


@pytest.mark.usefixtures("warm_simulations")
def test_compiled_functions_may_ask_for_the_gpus_properties(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(ASKS_FOR_PROPERTIES)
    assert vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200").peak_allocated_bytes >= 4 * 132


TAKES_GRADIENTS = """
import sys
import torch

def build():
    x = torch.ones(8, device="cuda")

    def step():
        torch.func.grad(lambda x: x.square().sum())(x)
        assert "torch._dynamo.convert_frame" not in sys.modules

    return step
"""


@pytest.mark.usefixtures("warm_simulations")
def test_gradients_of_torch_func_do_not_wait_for_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(TAKES_GRADIENTS)
    assert vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200").fits


LIMITS_CALLS = """
import sys
import torch

def build():
    sys.setrecursionlimit(40)
    weight = torch.ones(8, device="cuda", requires_grad=True)
    return lambda: (2 * weight).sum().backward()
"""


@pytest.mark.usefixtures("warm_simulations")
def test_a_limit_of_nested_calls_that_is_enough_for_the_program_is_enough(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(LIMITS_CALLS)
    assert vramcast.predict(f"{tmp_path}/work.py:build", gpu="h200").fits


def test_parts_of_torch_that_import_each_other_can_be_imported_first() -> None:
    """`import torch` has imported them; a simulation does when they are needed."""
    program = (
        "from vramcast.simulate import meta_kernels; meta_kernels.import_torch_without_them();"
        "import torch.utils._content_store, torch._refs"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
