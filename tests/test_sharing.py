"""What people see of an answer: Markdown, a page, an exit code that fails a pull request, knobs,
what is being tried, links to lines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import webbrowser
from io import StringIO
from pathlib import Path

import in_process
import pytest
import yaml
from rich.console import Console

import vramcast
from vramcast.cli import command, sharing
from vramcast.errors import UsageError, VramcastError
from vramcast.reporting.sections import Remark, Section
from vramcast.reporting.terminal import show_sections
from vramcast.units import GiB, MiB, grown

ROOT = Path(__file__).parents[1]
WORKFLOW = ROOT / "examples" / "memory-check.yml"
pytestmark = pytest.mark.usefixtures("warm_simulations")
PROGRAM = """\
import torch

def build(*, batch_size: int = 4096, width: int = 512):
    model = torch.nn.Linear(width, width).cuda()
    x = torch.randn(batch_size, width, device="cuda")

    def step():
        loss = model(x).square().mean()
        loss.backward()
        model.zero_grad()
        return loss

    return step

if __name__ == "__main__":
    step = build(batch_size={batch_size})
    for _ in range(3):
        step()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return in_process.vramcast(*words, folder=folder)


def test_a_peak_above_max_exits_with_3_and_the_json_says_by_how_much(folder: Path) -> None:
    words = ("predict", "train.py", "--json", "--max")
    small, large = run(folder, *words, "2MiB"), run(folder, *words, "22GiB")
    assert (small.returncode, large.returncode) == (3, 0)
    found = json.loads(small.stdout)
    assert found["fits"] and found["max_bytes"] == 2 * MiB
    assert found["over_max_bytes"] == found["peak_reserved_bytes"] - 2 * MiB
    assert json.loads(large.stdout)["over_max_bytes"] == 0
    people = run(folder, "predict", "train.py", "--max", "2MiB")
    assert "above the limit of 2.0 MiB (--max)" in people.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict", "train.py", "--max", "much"], "--max 24GiB"),
        (["predict", "train.py", "--max", "22"], "--max 22GiB"),
        (["predict", "train.py", "--vary", "width=1,2", "--max", "1GiB"], "are for one prediction"),
        (["predict", "train.py", "--format", "pdf"], "Formats: terminal, md, json."),
        (["predict", "train.py", "--format", "md", "--json"], "are two formats"),
        (["predict", "train.py", "--report", "."], "--report report.html"),
        (["predict", "train.py", "--report", "train.py"], "Choose another file with --report"),
        (["predict", "train.py", "--report", ""], "names no file"),
        (["diff", "train.py", "train.py", "--fail-above", "x%"], "--fail-above 2%"),
        (["diff", "train.py", "train.py", "--fail-above", "x"], "--fail-above 24GiB"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_predicted(
    folder: Path, words: list[str], message: str
) -> None:
    done = run(folder, *words)
    assert done.returncode == 2 and message in done.stderr and not done.stdout


def test_growth_is_a_share_or_a_size() -> None:
    assert grown(GiB, "2%") == int(GiB * 1.02)
    assert grown(GiB, " 0.5 %") == int(GiB * 1.005)
    assert grown(GiB, "500MiB") == GiB + 500 * MiB
    with pytest.raises(UsageError, match="not a growth"):
        grown(GiB, "-2%")


def test_a_difference_fails_only_above_what_is_allowed(folder: Path) -> None:
    words = ("diff", "train.py", "batch_size=4096", "train.py", "batch_size=8192", "--fail-above")
    above, within = run(folder, *words, "2%"), run(folder, *words, "900%", "--json")
    assert (above.returncode, within.returncode) == (3, 0)
    assert "✗ B's peak is" in above.stdout
    assert json.loads(within.stdout)["over_max_bytes"] == 0
    smaller = run(folder, "diff", "train.py", "train.py", "batch_size=64", "--fail-above", "2%")
    assert smaller.returncode == 0


def test_markdown_has_the_answer_and_one_table_open_and_the_rest_folded(folder: Path) -> None:
    text = run(folder, "predict", "train.py", "width=256", "--gpu", "t4", "--format", "md").stdout
    start, *folded = text.split("<details><summary>")
    assert start.startswith("### Predicted: train.py") and "**✓ fits on t4" in start
    assert "| reserved (by the allocator) |" in start and "Largest tensors" not in start
    assert [part.partition("<")[0] for part in folded][:2] == [
        "What the memory is at the peak (step 2)",
        "Largest tensors at the peak",
    ]
    # GitHub reads Markdown inside HTML only after an empty line.
    assert all(re.match(r".*</summary>\n\n[|`-]", part) for part in folded)
    assert "`width=256 batch_size=4096`" in text
    assert text.count("<details>") == text.count("</details>") == len(folded)


def test_what_was_found_is_shared_though_the_command_ends_with_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def found_but_not_saved(*, as_json: bool) -> int:
        command.show([Section(title="what was measured", verdict=Remark("stable"))], as_json)
        raise VramcastError("The folder is full.")

    page = tmp_path / "page.html"
    with pytest.raises(VramcastError):
        sharing.with_sharing(found_but_not_saved)(
            form="md", page=str(page), is_opened=False, as_json=False
        )
    assert "**stable**" in capsys.readouterr().out and "stable" in page.read_text()


def test_a_page_is_written_and_opened_beside_the_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    done = run(folder, "predict", "train.py", "--json", "--open")
    assert "Wrote report.html." in done.stderr and json.loads(done.stdout)["fits"]
    assert opened == [(folder / "report.html").as_uri()]
    assert "Predicted: train.py" in (folder / "report.html").read_text()
    again = run(folder, "diff", "train.py", "train.py", "width=64", "--report", "report.html")
    assert again.returncode == 3 and len(opened) == 1
    assert "Difference: train.py" in (folder / "report.html").read_text()


@pytest.mark.long
def test_the_example_workflow_fails_a_pull_request_whose_peak_grows(tmp_path: Path) -> None:
    """Its steps are run as GitHub runs them, after the checkouts and the installation."""
    for side, batch_size in (("old", "4096"), ("new", "6000")):
        (tmp_path / side).mkdir()
        (tmp_path / side / "train.py").write_text(PROGRAM.replace("{batch_size}", batch_size))
    workflow = yaml.safe_load(WORKFLOW.read_text())
    steps = [step["run"] for step in workflow["jobs"]["memory"]["steps"] if "run" in step]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    summary = tmp_path / "summary.md"
    environment = {
        **os.environ,
        **workflow["env"],
        "PATH": path,
        "GITHUB_STEP_SUMMARY": str(summary),
    }

    def step(text: str, **changed: str) -> int:
        command = ["bash", "-e", "-c", text]
        return subprocess.run(command, cwd=tmp_path, env={**environment, **changed}).returncode

    assert [step(text) for text in steps[1:]] == [0, 0, 3]
    text = summary.read_text()
    assert "✓ the peak is within the limit of 22.00 GiB (--max)" in text
    assert "✗ B's peak is" in text and "| peak reserved |" in text
    assert step(steps[-1], GROWTH="500%") == 0


def test_the_knobs_of_a_workload_or_a_line_are_listed_and_nothing_is_predicted(
    folder: Path,
) -> None:
    function = run(folder, "predict", "train.py", "--knobs")
    assert function.returncode == 0 and "fits" not in function.stdout
    assert re.search(r"^batch_size +4096 +int", function.stdout, re.MULTILINE)
    line = run(folder, "predict", "--knobs", "--", "python", "train.py", "--bs={batch_size}")
    assert re.search(r"^batch_size +required +any", line.stdout, re.MULTILINE)
    assert "predict batch_size=... --gpu rtx-4090 -- python train.py" in line.stdout
    none = run(folder, "predict", "--knobs", "--", "python", "train.py")
    assert "It has no knobs. Put a name in braces" in none.stdout


def test_knobs_that_were_given_come_first_in_the_title(folder: Path) -> None:
    shown = run(folder, "predict", "train.py", "width=256").stdout
    assert shown.startswith("╭─ train.py width=256 batch_size=4096 ─")


def test_a_search_says_which_size_it_tries(folder: Path) -> None:
    tried: list[str] = []
    vramcast.max_batch(
        f"{folder}/train.py", memory="1GiB", progress=lambda now: tried.append(now.detail)
    )
    assert "batch_size=1" in tried and len({*tried}) > 3


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_of_files_are_links_in_a_terminal_and_never_in_a_pipe(folder: Path) -> None:
    sections = [Section(title="", text=[f"made in {folder}/train.py:4 and {folder}/no_file.py:2"])]
    for file in (Terminal(), StringIO()):
        show_sections(sections, Console(file=file, width=300, force_terminal=True))
        links = re.findall(r"\x1b\]8;[^;]*;(file://[^\x1b]*)", file.getvalue())
        assert links == [f"{(folder / 'train.py').as_uri()}#4"] * file.isatty()
