"""The rooms of the house: which may import which, which may import torch, how large they are."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
PACKAGES = ("vramcast", "vramcast_zoo")
# From the top floor down. A room may import rooms on the floors below its own, and nothing else.
FLOORS = (
    ("__main__",),
    ("cli",),
    ("__init__",),
    ("tuning", "suites", "integrations"),
    ("benching",),
    ("predicting",),
    ("probing",),
    ("simulate", "reporting"),
    ("forecast",),
    ("hardware", "tracing", "programs"),
    ("workload", "allocator"),
    ("records", "processes"),
    ("text", "units", "downsampling"),
    ("errors",),
)
# Only these import torch: the commands' own process stays light and never starts CUDA.
WITH_TORCH = (
    "simulate",
    "programs.watching",
    "programs.graphs",
    "programs.helpers",
    "programs.launches",
    "programs.loaders",
    "programs.saving",
    "workload.switches",
    "workload.forced_changes",
    "suites.peers",
    "hardware.calibration.measure",
    "hardware.calibration.host",
    "hardware.torch_facts",
    "probing.on_gpu",
    "probing.on_cpu",
    "probing.cuda_on_cpu",
    "probing.allocation_history",
    "probing.phase_peaks",
    "probing.program",
    "integrations",
    "benching.trainer",
    "benching.training_step",
    "benching.threads",
    "benching.tensorboard",
)
# The zoo's lists of models and sizes are read by commands that do not import torch.
ZOO_WITHOUT_TORCH = (
    "catalogue",
    "sizing",
    "document_004",
    "refusal",
    "known.catalogue",
    "known.tasks",
)
MOST_LINES = 400
# Words of code: comments and docstrings are not counted, so that nobody cuts them to a riddle.
# The goal was 95,000 with them. The simulated GPU has since learnt to meet any program, vramcast to
# take launch lines, to answer fast and safely, to simulate compiled steps and several GPUs, to ask
# cuDNN and Triton's compiler, to time kernels by rows, channels and groups and by recorded ones
# that are like them, not to run again what an evaluation repeats, to draw the random numbers of a
# GPU, to stand in for flash-attn 3, to compute what decides sizes, and to run the host code of a
# program's own CUDA extensions, to hear the replays of a program's CUDA graphs, to go on from
# where a program first used the GPU when it is run a second time, to time many thin products, norms
# of weights and of groups, and rows that compiled kernels gather, to tell frozen networks that a
# step asks from evaluations, to read launch lines of DeepSpeed, to run blocks of fused kernels, to
# choose the tiles of products, to compute the whole numbers that fused kernels write, and to keep
# what running their blocks has told, and to tell what they hand on through shared memory. And for
# kernels that people write: when their blocks take too long, and what they write to.
# Raise this only for a capability that is worth it.
MOST_WORDS = 170_300
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
MOST_FILES_AT_THE_ROOT = 6


def modules() -> dict[str, Path]:
    """The dotted name and the file of every module."""
    found = {}
    for path in sorted(path for package in PACKAGES for path in (SRC / package).rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()
OURS = [name for name in MODULES if name.partition(".")[0] == "vramcast"]


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text())


def _statements(node: ast.AST, at_import: bool) -> Iterator[ast.AST]:
    """Every statement below, or only those that run when the module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr | ast.expr_context):
            continue  # no statement is below one
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if at_import and is_function:
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _statements(child, at_import)


@cache
def imports_of(name: str, *, at_import: bool = False) -> frozenset[str]:
    """The dotted names of the modules that a module imports."""
    found: set[str] = set()
    for node in _statements(tree_of(name), at_import):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative imports are not used here"
            base = node.module or ""
            for alias in node.names:
                if alias.name == "__version__":
                    continue  # a constant of the root, which Python imports first anyway
                full = f"{base}.{alias.name}"
                found.add(full if full in MODULES or base not in MODULES else base)
    return frozenset(found)


def room_of(name: str) -> str:
    """The package or file right below vramcast that a module is in."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def is_in(name: str, part: str) -> bool:
    return name == f"vramcast.{part}" or name.startswith(f"vramcast.{part}.")


def imports_torch(name: str) -> bool:
    return any(target.partition(".")[0] == "torch" for target in imports_of(name))


def circle_in(imports: Iterable[tuple[str, str]]) -> list[str]:
    graph: dict[str, set[str]] = {}
    for name, target in imports:
        graph.setdefault(name, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def upward_imports(imports: Iterable[tuple[str, str]]) -> list[str]:
    """Imports of a room that is not on a lower floor."""
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    return sorted(
        f"{name} imports {target}"
        for name, target in imports
        if room_of(name) != room_of(target) and floor[room_of(target)] <= floor[room_of(name)]
    )


def our_imports(*, at_import: bool = False) -> list[tuple[str, str]]:
    return [
        (name, target)
        for name in OURS
        for target in imports_of(name, at_import=at_import)
        if target in OURS
    ]


def test_the_imports_are_found_at_all() -> None:
    """The other tests would pass on an empty list."""
    assert len(OURS) > 100
    assert "torch" in imports_of("vramcast.simulate.session")
    assert "torch" not in imports_of("vramcast.simulate.session", at_import=True)
    assert "vramcast.errors" in imports_of("vramcast.units", at_import=True)


def test_every_room_has_its_floor() -> None:
    assert {room_of(name) for name in OURS} == {room for rooms in FLOORS for room in rooms}


def test_rooms_import_only_rooms_on_lower_floors() -> None:
    assert upward_imports(our_imports()) == []
    wrong = ("vramcast.tracing.diff", "vramcast.simulate.session")
    assert upward_imports([wrong]) == [f"{wrong[0]} imports {wrong[1]}"]


@pytest.mark.parametrize("package", PACKAGES)
def test_files_do_not_import_each_other_in_a_circle(package: str) -> None:
    inside = [name for name in MODULES if name.partition(".")[0] == package]
    imports = [(name, target) for name in inside for target in imports_of(name) if target in inside]
    assert imports
    assert circle_in(imports) == []
    assert circle_in([*imports, imports[0][::-1]]) != []


def test_the_zoo_knows_nothing_of_vramcast() -> None:
    zoo = [name for name in MODULES if name not in OURS]
    assert len(zoo) > 10
    strays = {name: [t for t in imports_of(name) if t.startswith("vramcast.")] for name in zoo}
    assert {name: targets for name, targets in strays.items() if targets} == {}


def test_torch_is_imported_only_where_a_workload_runs() -> None:
    users = {name for name in OURS if imports_torch(name)}
    assert sorted(n for n in users if not any(is_in(n, part) for part in WITH_TORCH)) == []
    unused = [part for part in WITH_TORCH if not any(is_in(name, part) for name in users)]
    assert unused == [], "these import no torch: take them off the list"
    assert not any(imports_torch(f"vramcast_zoo.{name}") for name in ZOO_WITHOUT_TORCH)


def test_the_root_holds_few_files() -> None:
    assert len(list((SRC / "vramcast").glob("*.py"))) <= MOST_FILES_AT_THE_ROOT


def test_no_file_is_too_long_to_read_in_one_go() -> None:
    files = sorted(path for path in SRC.rglob("*") if path.suffix in (".py", ".cpp", ".h", ".js"))
    files = [path for path in files if not path.name.endswith(".min.js")]
    lengths = {str(path.relative_to(SRC)): len(path.read_text().splitlines()) for path in files}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def num_words_of_code(source: str) -> int:
    lines = dict(enumerate(source.splitlines(), 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node) is not None:
            first = node.body[0]
            lines |= dict.fromkeys(range(first.lineno, 1 + (first.end_lineno or 0)), "")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row] = lines[row][:column]
    return sum(len(line.split()) for line in lines.values())


def test_comments_and_docstrings_are_not_counted() -> None:
    source = '''"""What it is."""\n\ndef f() -> int:\n    """Why."""\n    return 1  # so\n'''
    assert num_words_of_code(source) == len(["def", "f()", "->", "int:", "return", "1"])


def test_the_whole_stays_small_enough_to_read() -> None:
    assert sum(num_words_of_code(MODULES[name].read_text()) for name in OURS) <= MOST_WORDS
