"""The catalogue says of every optimisation what it changes and asks; the configuration that comes out can be written, read and pasted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from invented import MACHINE

from vramcast import load_configuration
from vramcast.errors import UsageError
from vramcast.records.machine import Machine
from vramcast.tuning.catalogue import BY_NAME, CATALOGUE, chosen
from vramcast.tuning.optimisation import missing_on
from vramcast.tuning.tune import baseline_of
from vramcast.units import parse_duration
from vramcast.workload import Text
from vramcast.workload.configuration import Configuration
from vramcast.workload.switches import Switches


def test_every_optimisation_says_what_it_changes_and_names_are_unique() -> None:
    assert len(BY_NAME) == len(CATALOGUE) > 25
    for optimisation in CATALOGUE:
        assert optimisation.what and (optimisation.changes or optimisation.size)
        assert optimisation.loss_tolerance is None or 0 < optimisation.loss_tolerance <= 0.05
        assert optimisation.loss_tolerance is not None or optimisation.size, (
            f"{optimisation.name}: why are its losses not compared?"
        )


def test_what_takes_long_to_start_comes_after_the_rest() -> None:
    slow = [
        optimisation.start_seconds >= 30
        for optimisation in CATALOGUE
        if optimisation.name.startswith("compile") or optimisation.start_seconds == 0
    ]
    assert not slow[0] and slow[-1]


@pytest.mark.parametrize(
    ("name", "machine", "device", "words"),
    [
        (
            "amp-fp8",
            replace(MACHINE, capability=(8, 6)),
            "cuda",
            "needs compute capability 8.9, and the GPU has 8.6",
        ),
        (
            "compile",
            replace(MACHINE, triton=None, triton_error="No module named 'triton'"),
            "cuda",
            "Triton is not there: No module",
        ),
        ("compile", replace(MACHINE, compiler=None), "cuda", "no C compiler"),
        ("optimizer-8bit-bitsandbytes", MACHINE, "cuda", "pip install bitsandbytes"),
        ("cuda-graphs", Machine(), "cpu", "this run is on the CPU"),
        ("tf32", Machine(), "cpu", "this run is on the CPU"),
        ("tf32", MACHINE, "cuda", None),
        ("amp-fp8", MACHINE, "cuda", None),
        (
            "optimizer-8bit-bitsandbytes",
            replace(MACHINE, packages={"bitsandbytes": "0.50"}),
            "cuda",
            None,
        ),
    ],
)
def test_what_an_optimisation_asks_of_the_machine(
    name: str, machine: Machine, device: str, words: str | None
) -> None:
    found = missing_on(BY_NAME[name], machine, device)
    assert found is None if words is None else found and words in found.sentence


def test_optimisations_are_chosen_by_name() -> None:
    assert [optimisation.name for optimisation in chosen("tf32, amp-bf16")] == ["amp-bf16", "tf32"]
    assert chosen(None) is CATALOGUE
    for wrong in ("tf32,fast", " , "):
        with pytest.raises(UsageError, match="optimisation") as caught:
            chosen(wrong)
        assert "cuda-graphs" in caught.value.advice


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20min", 1200), ("90s", 90), ("1.5h", 5400), ("170", 170), ("2 d", 172_800), ("3m", 180)],
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "0", "-5min", "5 parsecs", "nan", "1e3"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a time"):
        parse_duration(text)


# ---------------------------------------------------------------------------------------------------------------------- configuration
FINAL = Configuration(
    knobs={"batch_size": 32, "precision": "amp-bf16", "dtype": Text("bfloat16")},
    switches=Switches(tf32=True, sdpa="flash"),
    allocator="expandable_segments:True",
)


def test_a_configuration_is_the_same_after_it_was_written_and_read(tmp_path: Path) -> None:
    FINAL.save(tmp_path / "final.json", workload="w")
    assert load_configuration(tmp_path / "final.json") == FINAL
    assert Configuration(knobs={"a": 1, "b": 2}).key == Configuration(knobs={"b": 2, "a": 1}).key


def test_a_change_leaves_what_it_does_not_name() -> None:
    changed = FINAL.with_change(
        Configuration(knobs={"batch_size": 64}, switches=Switches(cudnn_benchmark=True))
    )
    assert changed.knobs == {**FINAL.knobs, "batch_size": 64}
    assert changed.switches == Switches(tf32=True, sdpa="flash", cudnn_benchmark=True)
    assert changed.allocator == FINAL.allocator


def test_a_knob_that_only_text_can_carry_stays_in_the_configuration() -> None:
    """A dtype comes back from the workload as its text: it must be given as text again, in every run and in the file."""
    baseline = baseline_of(
        {"batch_size": Text("2"), "dtype": Text("bfloat16")},
        {"batch_size": 2, "dtype": "torch.bfloat16", "width": 8},
    )
    assert baseline.to_dict()["knobs"] == {"batch_size": 2}
    assert baseline.to_dict()["knobs_text"] == {"dtype": "bfloat16"}
    changed = baseline.with_change(Configuration(knobs={"dtype": "other"}))
    # a change takes the place of the text
    assert changed.to_dict()["knobs"]["dtype"] == "other" and not changed.to_dict()["knobs_text"]


def test_a_file_that_cannot_be_imported_by_its_name_is_a_comment(tmp_path: Path) -> None:
    file = tmp_path / "my-train.py"
    file.write_text("def build(): ...")
    lines = Configuration(knobs={"a": 1}).python_lines(f"{file}:build")
    assert lines == [f"# build is that of {file}:build", "step = build(a=1)"]
    compile("\n".join(lines), "pasted", "exec")


def test_the_lines_to_paste_are_python_and_name_everything() -> None:
    lines = FINAL.python_lines("gpt2-124m")
    compile("\n".join(lines), "pasted", "exec")
    assert lines.index("import torch") < lines.index("from vramcast_zoo.names import gpt2_124m")
    assert Configuration(knobs={"a": 1}).python_lines(f"{__file__}:build") == [
        "from test_catalogue import build",
        "step = build(a=1)",
    ]
    text = "\n".join(lines)
    words_of_it = (
        "allow_tf32 = True",
        "enable_flash_sdp(True)",
        "enable_math_sdp(False)",
        "expandable_segments",
        "batch_size=32",
    )
    for words in (*words_of_it, "# dtype: as text"):
        assert words in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "is no JSON object"),
        ('{"kind": "plan", "version": 1}', "is a 'plan', not a vramcast configuration"),
        ('{"kind": "vramcast configuration", "version": 2}', "of version 2; this vramcast reads"),
        ('{"kind": "vramcast configuration", "version": true}', "of version True"),
        ({"knobs": []}, "Its knobs: Expected `object`, got `array`"),
        ({"knobs_text": {"dtype": 5}}, "Its knobs_text: .*Expected `str`, got `int`"),
        ({"switches": {"warp": True}}, "no switch 'warp'"),
        ({"switches": {"tf32": "yes"}}, "switches.tf32: Expected `bool | null`, got `str`"),
        ({"switches": {"sdpa": "magic"}}, "switch sdpa is 'magic'"),
        ({"allocator": 3}, "allocator: Expected `str | null`, got `int`, found 3"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(
    tmp_path: Path, content: object, words: str
) -> None:
    path = tmp_path / "c.json"
    head = {"kind": "vramcast configuration", "version": 1}
    path.write_text(content if isinstance(content, str) else json.dumps({**head, **content}))  # type: ignore[dict-item]
    with pytest.raises(UsageError, match=words):
        load_configuration(path)
    with pytest.raises(UsageError, match="cannot be read"):
        load_configuration(tmp_path / "none.json")
