"""The documentation stays true: options are those of --help, commands print what a page shows."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import figures
import notebooks
import pictures
import pytest
import typer
import yaml
from blocks import DOCS, ROOT, Block, blocks_of, commands_of, pages
from counts import counted, rows_of
from generate import commands, generated
from long_tests import long_unless
from sessions import Sandbox, comparable, not_printed

import vramcast
from vramcast.cli.commands import app
from vramcast.hardware.gpus import find_gpu
from vramcast.probing.manager import Prober
from vramcast.workload import bind_knobs, load_function, parse_reference, split_assignments
from vramcast_zoo.known.catalogue import shipped

PAGES = pages()
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
LANGUAGES = {"console", "bash", "python", "toml", "yaml", "text"}
SHELL = ("console", "bash")
TAKES_A_WORKLOAD = {"predict", "probe", "max-batch", "plan", "tune", "calibrate"}


def chosen(*languages: str, run: bool) -> list[Any]:
    blocks = [
        block
        for block in BLOCKS
        if block.language in languages and block.file is None and (block.not_run is None) == run
    ]
    return [pytest.param(block, id=block.name) for block in blocks]


@pytest.fixture(scope="module")
def sandbox(
    tmp_path_factory: pytest.TempPathFactory,
    warm_simulations: None,
    warm_probes: Prober,
    workspaces_of_torch_2_13: None,
) -> Sandbox:
    return Sandbox(tmp_path_factory.mktemp("docs"))


@pytest.mark.parametrize(
    "page",
    long_unless(
        lambda page: page in ("README.md", "docs/tour.md", "docs/commands/max-batch.md"),
        sorted(
            {block.page for block in BLOCKS if block.language in SHELL and block.not_run is None}
        ),
    ),
)
def test_commands_print_what_their_page_shows(page: str, sandbox: Sandbox) -> None:
    """In the order of the page: a command may need what the one before it wrote."""
    for block in (
        block
        for block in BLOCKS
        if block.page == page and block.language in SHELL and block.not_run is None
    ):
        for command in commands_of(block):
            printed = sandbox.run(command.text)
            if block.varies:
                assert printed and sandbox.code in (0, 1), (
                    f"{block.name}: {command.text} ended with {sandbox.code}:\n{printed}"
                )
                continue
            assert not_printed(command, printed) == [], (
                f"{block.name}: {command.text} printed:\n{printed}"
            )


@pytest.mark.parametrize("block", chosen("python", run=True))
def test_python_prints_what_the_comments_say(block: Block, sandbox: Sandbox) -> None:
    printed = sandbox.python(block.text)
    assert printed.splitlines() == re.findall(r"^# (.*)$", block.text, re.MULTILINE)


@pytest.mark.parametrize("block", chosen(*SHELL, run=False))
def test_commands_that_are_not_run_exist_with_their_options_knobs_and_gpus(
    block: Block, sandbox: Sandbox, monkeypatch: Any
) -> None:
    monkeypatch.chdir(sandbox.folder)
    assert block.not_run, "the reason"
    for command in commands_of(block):
        check(command.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_within_sentences_exist_too(
    page: Path, sandbox: Sandbox, monkeypatch: Any
) -> None:
    monkeypatch.chdir(sandbox.folder)
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for text in re.findall(r"`(vramcast [^`]+)`", prose):
        words = " ".join(text.split())
        if re.search(
            r"\.\.\.|\b[A-Z]{3,}\b| --(out|help)$|no_such_file", words
        ):  # with something left out, or a name that stands for yours
            assert words.split()[1] in ("--help", "COMMAND", *list(commands())), words
        elif words.split()[1:] not in ([name] for name in list(commands())):
            check(words)


def check(text: str) -> None:
    words = shlex.split(re.sub(r" > \S+$", "", text), comments=True)
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert all("=" in word or word in targets for word in words[1:])
    if words[0] != "vramcast":
        return
    name, given = parsed(words[1:])
    if name in TAKES_A_WORKLOAD and given["workload"] is not None:
        bind_knobs(
            load_function(parse_reference(given["workload"])),
            split_assignments(given["knobs"] or []),
        )
    for gpu in (given.get("gpu") or "").split(","):
        assert gpu in ("", "all") or find_gpu(gpu)
    for model in (word for word in given.get("models", []) if "=" not in word):
        assert any(entry == model or entry.startswith(f"{model}-") for entry in vramcast_names())


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The command and its parameters; raises where there is no such command or option."""
    group: Any = typer.main.get_command(app)
    command = group.commands[words[0]]
    return words[0], command.make_context(words[0], words[1:]).params


def vramcast_names() -> list[str]:
    from vramcast_zoo.catalogue import ENTRIES

    return [entry.name for entry in ENTRIES]


@pytest.mark.parametrize(
    "block",
    [block for block in BLOCKS if block.language not in SHELL],
    ids=lambda block: block.name,
)
def test_other_blocks_are_what_they_say_they_are(block: Block) -> None:
    readers: dict[str, Any] = {"python": ast.parse, "toml": tomllib.loads, "yaml": yaml.safe_load}
    assert readers.get(block.language, str)(block.text) is not None


def test_every_block_says_its_language_and_every_fence_was_found() -> None:
    assert {block.language for block in BLOCKS} <= LANGUAGES
    fences = sum(len(re.findall(r"^ *```", page.read_text(), re.MULTILINE)) for page in PAGES)
    assert fences == 2 * len(BLOCKS) > 100
    marks = sum(
        len(re.findall(r"^ *<!-- (?:not run|varies|file):", page.read_text(), re.MULTILINE))
        for page in PAGES
    )
    assert marks == sum(any((block.not_run, block.varies, block.file)) for block in BLOCKS)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "files.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_generated_part_of_a_page_is_what_the_code_says(page: Path) -> None:
    assert page.read_text() == generated(page), "run python docs/generate.py"


@pytest.mark.parametrize("name", list(commands()))
def test_every_command_has_a_page_with_its_options_and_help_that_teaches(name: str) -> None:
    text = (DOCS / "commands" / f"{name}.md").read_text()
    assert f"<!-- generated: options of {name} -->" in text
    for heading in ("## Options", "## Exit codes", "## What next"):
        assert heading in text
    assert f"commands/{name}.md" in (ROOT / "mkdocs.yml").read_text()
    assert f"docs/commands/{name}.md" in (ROOT / "README.md").read_text()
    command = commands()[name]
    assert len(command.short_help) <= 65  # one line in the list of commands
    examples, _, then = command.epilog.partition("\n\n")
    assert then.startswith("Next: ") and f"vramcast {name}" in examples
    for example in examples.splitlines()[2:]:
        parsed(_words(example.strip()))


def _words(example: str) -> list[str]:
    """An example of --help without what is said beside it."""
    command = re.split(r" {2,}| > ", example)[0]
    return shlex.split(command)[1:]


def test_every_public_name_is_in_the_reference_with_a_docstring() -> None:
    reference = (DOCS / "api.md").read_text()
    for name in vramcast.__all__:
        if name.startswith("__"):
            continue
        assert f"::: vramcast.{name}\n" in reference
        assert name == "GPUS" or getattr(vramcast, name).__doc__
    assert (ROOT / "src" / "vramcast" / "py.typed").exists()


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()):
            if target.startswith("http") or anchor.startswith(
                "vramcast."
            ):  # of the reference, which the site makes
                continue
            file = page.parent / target if target else page
            assert file.exists(), f"{page}: {target}"
            assert not anchor or anchor in anchors(file), f"{page}: {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.long
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip(
        "mkdocs", reason="the documentation's generator is not installed (extra docs)"
    )
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "max_batch" in (tmp_path / "api.html").read_text()
    # Search in a folder of files, without another server.
    assert "fragmentation" in (tmp_path / "search" / "search_index.js").read_text()
    scripts = re.findall(r'<script src="([^"]*)"', (tmp_path / "index.html").read_text())
    assert "assets/iframe-worker.js" in scripts and not any("//" in one for one in scripts)


def test_what_is_not_printed_is_found() -> None:
    command = commands_of(Block("page", 1, "console", "$ vramcast zoo\none  line\n...\nanother\n"))[
        0
    ]
    assert command.text == "vramcast zoo"
    assert not_printed(command, "one line\nand another") == []
    assert not_printed(command, "another\none line") == ["another"]
    assert comparable("torch 2.13.0+cpu, no GPU used, 1.9 s)") == comparable(
        "torch 2.10.1, no GPU used, 12.3 s)"
    )


def test_the_picture_of_the_terminal_is_what_the_command_prints(sandbox: Sandbox) -> None:
    printed = sandbox.run(pictures.COMMAND)
    command, *lines = pictures.lines_in(pictures.TERMINAL.read_text())
    assert command == f"$ {pictures.COMMAND}" and len(lines) > 20
    text = "".join(printed.split())
    missing = [line for line in lines if "".join(line.split()) not in text]
    assert missing == [], "run python docs/generate.py --pictures"


def test_the_figures_are_what_their_script_draws() -> None:
    written = {path.name: path.read_text() for path in figures.FOLDER.iterdir()}
    assert written == figures.texts(), "run python docs/generate.py"
    shown = (DOCS / "how-it-works.md").read_text()
    assert all(f"(figures/{name})" in shown for name in written)


def test_the_notebook_prints_what_it_shows(tmp_path: Path, sandbox: Sandbox) -> None:
    """`sandbox` is for the simulations that are ready."""
    printed, shown = notebooks.run(tmp_path), notebooks.shown()
    assert list(map(comparable, printed)) == list(map(comparable, shown)) and any(shown)
    assert (tmp_path / "tiny.html").exists()


def test_counts_are_of_rows_with_a_measurement_and_of_the_first_table_with_the_name(
    tmp_path: Path,
) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "| row | error | error |\n|---|---:|---:|\n| a | exact | +9 % |\n| b | -0.90 % | |\n"
        "| c | +1.10 % | |\n| d | | |\n\n| other |\n|---|\n| x |\n"
    )
    rows = list(rows_of(page))
    assert [row.get("error") for row in rows] == ["exact", "-0.90 %", "+1.10 %", "", None]
    assert counted(row["error"] for row in rows if row.get("error")) == (3, 1, 2)


def test_the_number_of_known_models_in_readme_is_that_of_the_catalogue() -> None:
    assert f"{len(shipped())} models of Hugging Face" in (ROOT / "README.md").read_text()
