"""A configuration can be written, read, changed and pasted; a file that is none is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vramcast import load_configuration
from vramcast.errors import UsageError
from vramcast.workload import Text
from vramcast.workload.configuration import Configuration
from vramcast.workload.switches import Switches

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
        "from test_configuration import build",
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
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
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
