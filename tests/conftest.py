"""What all tests share."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from marked_processes import Marked

from vramcast.cli import brief_advice
from vramcast.predicting import max_batch
from vramcast.probing import probe
from vramcast.probing.manager import Prober
from vramcast.processes.ask import ForkServer
from vramcast.simulate.runner import shared_server, simulation_server
from vramcast.simulate.workspaces import as_taken_by
from vramcast.tuning import tune

TESTS = Path(__file__).parent
LONGEST_FILES = (
    "benching/test_on_ray.py",
    "faults/test_faults.py",
    "docs/test_docs.py",
    "simulate/test_device_programs.py",
    "simulate/test_compiling.py",
    "reporting/test_accessibility.py",
    "benching/test_whole_benches.py",
    "predicting/test_plan.py",
    "programs/test_several_gpus.py",
    "simulate/test_kernels.py",
    "simulate/test_programs.py",
)

# What is imported and collected stays: looking through it again and again takes longer than it.
gc.disable()

# Threads that wait for one another keep the cores busy: where other processes want them too, tests
# that compute would take several times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Property tests look elsewhere in every run, but in CI where they looked before:
# a change is judged by what it changed. A slow or busy machine is no reason to fail.
settings.register_profile(
    "on-any-machine",
    derandomize=bool(os.environ.get("CI")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("on-any-machine")
# a server that the user keeps is not what is tested
os.environ["VRAMCAST_SERVER"] = "off"
# nor is the advice below every no: a test that looks at it allows the seconds
brief_advice.MOST_SECONDS = 0.0
_crashed: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the tests marked long too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests are left out of a run of everything; of a file that is named they run too. Files
    that take longest come first: begun last, one of them would leave the other cores idle."""
    items.sort(key=lambda item: item.path.relative_to(TESTS).as_posix() not in LONGEST_FILES)
    is_everything = {Path(argument).resolve() for argument in config.args} == {TESTS}
    if config.getoption("--all") or not is_everything:
        return
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
    items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """xdist tells that a process of tests has died, and not by which signal."""
    if error:
        status = node.gateway._io.popen.wait(timeout=10)
        _crashed.append(f"{node.gateway.id} ended with exit code {status}: {error}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in _crashed:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def _simulations() -> Iterator[ForkServer]:
    with simulation_server() as server:
        yield server


@pytest.fixture(scope="module")
def warm_simulations(_simulations: ForkServer, workspaces_of_torch_2_11: None) -> Iterator[None]:
    """Simulations that this file's tests ask for fork from one process that has imported torch.

    Their numbers do not depend on the version of torch.
    """
    with shared_server(_simulations):
        yield


@pytest.fixture(scope="session")
def _prober() -> Iterator[Prober]:
    with Prober() as prober:
        prober.start()  # in an environment without the mark of a test
        yield prober


@pytest.fixture(scope="module")
def warm_probes(_prober: Prober) -> Iterator[Prober]:
    """Real runs that this file's tests ask for fork from one process that has imported torch."""

    def shared(preload: Sequence[str] = (), **start: Any) -> AbstractContextManager[Prober]:
        is_plain = not preload and not any(start.values())
        return nullcontext(_prober) if is_plain else Prober(preload, **start)

    with pytest.MonkeyPatch.context() as patch:
        for module in (probe, tune, max_batch):
            patch.setattr(module, "Prober", shared)
        yield _prober


@contextmanager
def _workspaces_as_taken_by(torch_version: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in as_taken_by(torch_version).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def workspaces_of_torch_2_11() -> Iterator[None]:
    """The torch of the recordings: newer ones take the workspaces of cuBLAS in other ways."""
    with _workspaces_as_taken_by("2.11.0"):
        yield


@pytest.fixture(scope="module")
def workspaces_of_torch_2_13() -> Iterator[None]:
    """The torch of the outputs that the documentation shows."""
    with _workspaces_as_taken_by("2.13.0"):
        yield


@pytest.fixture(scope="module")
def new_mark() -> Iterator[Callable[[], Marked]]:
    """A fresh mark; whatever still carries it when the tests are over is ended."""
    marks: list[Marked] = []

    def make() -> Marked:
        marks.append(Marked())
        return marks[-1]

    yield make
    for mark in marks:
        mark.end()
