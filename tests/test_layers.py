"""Dependencies point one way, and what needs no torch does not import it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"
NO_TORCH = (
    *("allocator", "forecast", "interpolate", "records", "units", "errors", "gpus", "report", "workload", "parallel", "tracing"),
    *("store", "nvml", "environment", "cli", "planning", "timing", "tuning", "machine", "machine_checks", "configuration", "fastest"),
    *("benching.protocol", "benching.data", "benching.corpus", "benching.records", "benching.trial_folder", "benching.runs"),
    *("benching.significance", "benching.compare", "benching.api", "benching.batch_size", "benching.sweep", "benching.places"),
    *("benching.workers", "benching.on_ray"),
)
SIMULATE_WITHOUT_TORCH = ("runner", "build", "target", "workspaces", "lengths", "planned")
WITH_TORCH = (
    *("simulate", "switches", "suites.workloads", "suites.peers", "calibration.measure"),
    *("probing.zygote", "probing.on_gpu", "probing.on_cpu", "probing.redirect", "probing.history"),
    *("benching.worker", "benching.trainer", "benching.models", "benching.prefetch", "benching.meters", "benching.step_workload"),
    *("benching.checkpoints", "benching.tensorboard"),
)
MOST_LINES = 400


def modules() -> dict[str, Path]:
    """Dotted name -> file, of every module of the package."""
    found = {}
    for path in sorted((SRC / "vramcast").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text())


def _statements(node: ast.AST, at_start_only: bool) -> Iterator[ast.AST]:
    """Every node below, without functions' bodies and `if TYPE_CHECKING` where only what runs at import is asked for."""
    for child in ast.iter_child_nodes(node):
        if at_start_only and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _statements(child, at_start_only)


@cache
def imports_of(name: str, *, at_start_only: bool = False) -> frozenset[str]:
    """Full dotted names: of the module, and of what is imported from it where that is a module too."""
    found: set[str] = set()
    for node in _statements(tree_of(name), at_start_only):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative imports are not used here"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if full in MODULES or base not in MODULES else base)
    return frozenset(found)


@cache
def imports_torch(name: str) -> bool:
    called = any(
        isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")) and "torch" in ast.unparse(node)
        for node in ast.walk(tree_of(name))
    )
    return called or any(target.partition(".")[0] == "torch" for target in imports_of(name))


def is_in(name: str, part: str) -> bool:
    return name == f"vramcast.{part}" or name.startswith(f"vramcast.{part}.")


def test_the_imports_are_found_at_all() -> None:
    """The rules below hold for an empty list as well: this is what keeps them from that."""
    assert len(MODULES) > 30
    assert "torch" in {target.partition(".")[0] for target in imports_of("vramcast.simulate.sites")}
    assert "torch" in imports_of("vramcast.simulate.session")
    assert "torch" not in imports_of("vramcast.simulate.session", at_start_only=True)
    assert "vramcast.errors" in imports_of("vramcast.units", at_start_only=True)


def circle_in(imports: Iterable[tuple[str, str]]) -> list[str]:
    graph: dict[str, set[str]] = {}
    for name, target in imports:
        graph.setdefault(name, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def package_of(name: str) -> str:
    """The package right below vramcast, or the module where there is none."""
    return ".".join(name.split(".")[:2])


def between_packages(imports: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    pairs = ((package_of(name), package_of(target)) for name, target in imports)
    return (pair for pair in pairs if pair[0] != pair[1])


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    assert circle_in((name, target) for name in MODULES for target in imports_of(name, at_start_only=True) if target in MODULES) == []


def test_packages_do_not_import_each_other_in_a_circle_not_even_inside_functions() -> None:
    imports = [(name, target) for name in MODULES for target in imports_of(name) if target in MODULES]
    assert ("vramcast.cli", "vramcast.report") in set(between_packages(imports))  # only inside functions
    assert circle_in(between_packages(imports)) == []
    back = ("vramcast.tracing.simulated", "vramcast.simulate.worker")  # simulate imports tracing
    assert {"vramcast.simulate", "vramcast.tracing"} <= set(circle_in(between_packages([*imports, back])))


def test_what_needs_no_torch_never_imports_it() -> None:
    for part in NO_TORCH:
        assert any(is_in(name, part) for name in MODULES), f"there is no {part}: correct the list"
    assert [name for name in MODULES if any(is_in(name, part) for part in NO_TORCH) and imports_torch(name)] == []


def test_torch_is_imported_only_where_a_workload_runs() -> None:
    """Not in the commands' own process: it stays light, and never starts CUDA."""
    without = {f"vramcast.simulate.{name}" for name in SIMULATE_WITHOUT_TORCH}
    assert without <= set(MODULES)
    users = {name for name in MODULES if imports_torch(name)}
    assert {"vramcast.simulate.ownership", "vramcast.probing.on_gpu", "vramcast.suites.peers"} <= users
    assert sorted(name for name in users if not any(is_in(name, part) for part in WITH_TORCH) or name in without) == []


def test_nothing_imports_the_command_line_but_its_own_start() -> None:
    users = {name for name in MODULES if any(is_in(target, "cli") for target in imports_of(name))}
    assert "vramcast.__main__" in users
    assert sorted(name for name in users if not is_in(name, "cli") and name != "vramcast.__main__") == []


def test_the_allocator_knows_only_itself_and_the_basics() -> None:
    allowed = ("allocator", "errors", "units")
    strays = {
        name: sorted(target for target in imports_of(name) if target.startswith("vramcast") and not any(is_in(target, a) for a in allowed))
        for name in MODULES
        if is_in(name, "allocator")
    }
    assert len(strays) > 3
    assert {name: targets for name, targets in strays.items() if targets} == {}


def test_no_file_is_too_long_to_read_in_one_go() -> None:
    table = SRC / "vramcast" / "gpus.py"  # one entry a GPU: looked up, not read
    assert table.exists()
    files = sorted(path for path in SRC.rglob("*") if path.suffix in (".py", ".cpp", ".h") and path != table)
    lengths = {str(path.relative_to(SRC)): len(path.read_text().splitlines()) for path in files}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}
