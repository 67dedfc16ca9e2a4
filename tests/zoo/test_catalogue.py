"""The names, their exact parameter counts, and sizes found by budget."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import in_process
import pytest
import torch
from typer.testing import CliRunner

from vramcast import predict
from vramcast.cli.commands import app
from vramcast.errors import UsageError, WorkloadError
from vramcast.probing.measurement import workload_id
from vramcast.workload import parse_reference
from vramcast_zoo import names
from vramcast_zoo.catalogue import BY_NAME, DOCUMENTS, ENTRIES, find_named
from vramcast_zoo.known import catalogue as known
from vramcast_zoo.sizing import FAMILIES, solve

pytestmark = pytest.mark.usefixtures("warm_simulations")
EXACT = {
    "e10-391m": 390_974_976,
    "e10-50m": 50_054_400,
    "e10-100m": 97_945_344,
    "e10-200m": 199_641_600,
    "e5-d768-r539": 49_918_464,
    "e5-d1024-r404": 49_969_152,
    "e5-d1536-r270": 50_254_848,
    "e5-d2048-r200": 49_803_264,
    "e5-d3072-r133": 50_006_016,
    "e5-d4096-r99": 49_963_008,
    "e5-d6144-r65": 49_876_992,
    "e1-50m": 49_714_944,
    "e1-d1024": 26_493_952,
    "e1-d512": 27_689_472,
    "e1-400m": 386_340_864,
    "mamba2-50m": 50_928_750,
    "mamba2-100m": 101_359_638,
    "mamba2-200m": 201_148_970,
    "mamba2-400m": 402_064_492,
    "yxanul-197m": 196_398_464,
    "yxanul-350m-fp8": 350_002_304,
    "elleci-1.36b": 1_355_075_776,
    "od1-small": 532_227,
    "od1-real": 2_495_557,
    "od1-stress": 4_370_437,
    "gpt2-124m": 124_439_808,
    "llama-300m": 306_750_464,
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return in_process.vramcast("zoo", *arguments)


def test_every_name_is_checked_here() -> None:
    assert sorted(EXACT) == sorted(BY_NAME)
    assert {entry.document for entry in ENTRIES} - {None} <= set(DOCUMENTS)


@pytest.mark.parametrize("name", EXACT)
def test_a_name_has_exactly_its_parameters_by_formula_and_in_the_modules(name: str) -> None:
    with torch.device("meta"):
        model = names.make(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == EXACT[name]
    assert BY_NAME[name].parameters == EXACT[name]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_familys_formula_knows_the_modules_own_defaults(family: str) -> None:
    make_model = __import__(f"vramcast_zoo.{family}", fromlist=["make_model"]).make_model
    sizes = inspect.signature(make_model).parameters
    assert {name: sizes[name].default for name in FAMILIES[family].defaults} == FAMILIES[
        family
    ].defaults


@pytest.mark.parametrize("name", EXACT)
def test_a_name_is_a_workload_without_being_installed(name: str) -> None:
    reference = parse_reference(name)
    assert reference.module == "vramcast_zoo.names"
    build = getattr(names, reference.function)
    knobs = inspect.signature(build).parameters
    assert {"batch_size", "seq_len", "precision", "optimizer", "lr", "seed", "compile"} <= set(
        knobs
    )
    assert {size: knobs[size].default for size in BY_NAME[name].sizes} == dict(BY_NAME[name].sizes)


def test_a_mistyped_name_is_answered_with_a_close_one() -> None:
    with pytest.raises(WorkloadError, match="Did you mean 'e10-391m'"):
        parse_reference("e10-392m")


def test_names_and_sizes_need_no_torch() -> None:
    code = "import sys, vramcast.cli.zoo, vramcast_zoo.names; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    "dim, rank",
    [(768, 539), (1024, 404), (1536, 270), (2048, 200), (3072, 133), (4096, 99), (6144, 65)],
)
def test_the_ranks_of_document_002_are_found_by_budget(dim: int, rank: int) -> None:
    named = find_named("e5", 50_000_000, {"dim": dim})
    assert named is not None and named.sizes["rank"] == rank
    assert abs(solve(FAMILIES["e5"], 50_000_000, {"dim": dim}).sizes["rank"] - rank) <= 1


@pytest.mark.parametrize("name", EXACT)
def test_solving_for_a_models_own_count_gives_its_size_back(name: str) -> None:
    entry = BY_NAME[name]
    family = FAMILIES[entry.family]
    for free in family.free:
        given = {size: value for size, value in entry.all_sizes.items() if size != free}
        assert solve(family, entry.parameters, given).sizes == entry.all_sizes


def test_the_nearest_size_wins_on_both_sides() -> None:
    counts = [FAMILIES["e5"].count(dim=64, depth=1, rank=rank) for rank in (7, 8)]
    middle = sum(counts) // 2
    assert [
        solve(FAMILIES["e5"], wanted, {"dim": 64, "depth": 1}).sizes["rank"]
        for wanted in (middle - 1, middle + 1)
    ] == [7, 8]


def test_the_command_lists_every_name_for_people_and_as_json() -> None:
    listed = json.loads(run("--json").stdout)
    shipped = {f"hf:{name}": model.parameters for name, model in known.shipped().items()}
    assert {entry["name"]: entry["num_parameters"] for entry in listed} == {**EXACT, **shipped}
    assert {"family", "document", "document_title", "sizes"} <= set(listed[0])
    table = run().stdout
    rows = {**EXACT, **shipped}.items()
    assert all(f"{name} " in table and f"{count:,}" in table for name, count in rows)


def test_the_command_finds_models_by_a_part_of_their_names() -> None:
    found = [entry["name"] for entry in json.loads(run("gemma-2-", "--json").stdout)]
    assert found == ["hf:google/gemma-2-2b", "hf:google/gemma-2-9b", "hf:google/gemma-2-27b"]
    llamas = {entry["name"] for entry in json.loads(run("llama", "--json").stdout)}
    assert {"llama-300m", "hf:meta-llama/Llama-3.1-8B"} <= llamas


@pytest.mark.parametrize("name", ["hf:gpt2", "gpt2-xl"])
def test_the_command_shows_the_knobs_of_a_model_with_defaults(name: str) -> None:
    shown = json.loads(run(name, "--json").stdout)
    knobs = {knob["name"]: knob["default"] for knob in shown["knobs"]}
    assert (knobs["seq_len"], knobs["lora"], knobs["task"]) == (1024, 0, "causal")


def test_the_command_finds_the_rank_of_document_002() -> None:
    found = json.loads(run("e5", "--params", "50M", "--dim", "1536", "--json").stdout)
    assert (found["rank"], found["name"], found["num_parameters"]) == (
        270,
        "e5-d1536-r270",
        50_254_848,
    )
    assert found["nearest"] == {"rank": 269, "num_parameters": 50_070_528}
    assert run("e5", "--params", "50M", "--dim", "1536").stdout.startswith(
        "rank 270: 50,254,848 parameters"
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("e6",), "There is no family 'e6'"),
        (("gemma-22",), "Did you mean hf:google/gemma-2-2b"),
        (("e5-d1536-r270", "--params", "50M"), "needs a family"),
        (("e5", "--params", "many"), "not a number of parameters"),
        (("e5", "--params", "0"), "not a number of parameters"),
        (("--params", "50M"), "needs a family"),
        (("e5", "--dim", "64"), "no budget"),
        (("e5", "--params", "50M", "--dim", "64"), "above dim=64"),
        (("e5", "--params", "50M", "--rank", "7", "--depth", "3"), "nothing is left to solve for"),
        (("e5", "--params", "50M", "heads=7"), "e5 has no size 'heads'"),
        (("e5", "--params", "50M", "dim=wide"), "expected a number"),
        (("e5", "--params", "50M", "dim=-4"), "above zero"),
        (("e5", "--params", "50M", "dim=nan"), "must be a whole number"),
        (("e5", "--params", "50M", "depth=1.5"), "must be a whole number"),
        (("e1", "--params", "50M", "expansion=inf"), "expansion=inf must be a number up to"),
        (("e5", "--params", "50M", "dim=true"), "must be a number"),
        (("e5", "--params", "50M", "dim=99999999999999999999999"), "must be a number up to"),
    ],
)
def test_a_wrong_request_is_answered_with_one_message(
    arguments: tuple[str, ...], message: str
) -> None:
    result = CliRunner().invoke(app, ["zoo", *arguments])
    assert isinstance(result.exception, UsageError) and message in str(result.exception)
    assert result.stdout == ""


def test_a_wrong_request_ends_with_exit_code_2_and_no_traceback() -> None:
    done = run("e6")
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr


def document_id(
    ant: str, colony: str | None = None, *, precision: str = "fp32", batch_size: int | None = None
) -> str:
    """The id of a model in the run of the same or another preset, from its knobs."""
    run_sizes = BY_NAME[f"od1-{colony or ant}"].knobs
    sizes = {name: BY_NAME[f"od1-{ant}"].all_sizes[name] for name in ("ring_len", "slot_dim")}
    length = run_sizes["seq_len"]
    fixed = {
        "ptr_dtype": "fp64",
        "ptr_update_every": 1,
        "state_loop_samples": 0,
        "synth_len": length,
        "seq_len": length,
    }
    return workload_id(
        f"od1-{ant}",
        {
            **sizes,
            **fixed,
            "precision": precision,
            "batch_size": batch_size or run_sizes["batch_size"],
        },
    )


def test_workload_ids_are_those_of_document_004() -> None:
    assert [document_id(preset) for preset in ("small", "real", "stress")] == [
        "wl_v1_37d4c849bed8",
        "wl_v1_a87a40941a4c",
        "wl_v1_ab3432401162",
    ]
    rows = [
        ("small", "real", 16),
        ("small", "real", 24),
        ("small", "real", 32),
        ("real", "real", 1),
        ("real", "real", 2),
        ("real", "real", 3),
    ]
    rows += [("real", "small", 4), ("stress", "real", 1)]
    ids = [
        document_id(ant, colony, precision="fp16", batch_size=batch) for ant, colony, batch in rows
    ]
    assert [name.removeprefix("wl_v1_") for name in ids] == (
        [
            "831069834653",
            "524892c72f9c",
            "7f2bd54d8f30",
            "24b4fa884f63",
            "bbad724bc96c",
            "afc28bd12268",
            "088f2d0358f1",
            "7fd1b9fb8e53",
        ]
    )


def test_a_name_is_predicted_with_its_knobs() -> None:
    prediction = predict("e10-391m", dim=64, depth=1, batch_size=2, seq_len=16, gpu="h200")
    assert prediction.num_parameters == FAMILIES["e10"].count(
        dim=64, depth=1, expansion=1.0, banks=4
    )
    assert prediction.fits


def test_a_budget_that_no_size_comes_near_is_said_to_be_missed() -> None:
    assert "The budget is missed" in in_process.vramcast("zoo", "e5", "--params", "1").stdout
    assert (
        "missed" not in in_process.vramcast("zoo", "e5", "--params", "50M", "--dim", "1536").stdout
    )


def test_knobs_are_shown_of_a_file_that_asks_for_a_gpu_when_it_is_imported(tmp_path: Path) -> None:
    """As torchvision does beside a torch without CUDA: it cannot be imported there."""
    file = tmp_path / "asks.py"
    file.write_text(
        "import torch\nassert torch.cuda.is_available()\ndef build(*, batch_size=8): ...\n"
    )
    found = in_process.vramcast("predict", f"{file}:build", "--knobs")
    assert found.returncode == 0, found.stderr
    assert "batch_size" in found.stdout
