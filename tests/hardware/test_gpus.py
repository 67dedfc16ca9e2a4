from __future__ import annotations

import dataclasses
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.errors import UsageError
from vramcast.hardware.gpu_names import own_name
from vramcast.hardware.gpus import FILE, GPUS, Gpu, _key, catalogue, find_gpu
from vramcast.units import GiB

ASKED_FOR = [
    "h200",
    "h100-80gb",
    "h100-96gb",
    "h100-pcie",
    "h100-nvl",
    "gh200-96gb",
    "b200",
    "a100-40gb",
    "a100-80gb",
    "a100-pcie-80gb",
    "a6000",
    "a5000",
    "a4000",
    "a10",
    "a10g",
    "a30",
    "a40",
    "l4",
    "l40",
    "l40s",
    "rtx-6000-ada",
    "rtx-pro-6000",
    "v100-16gb",
    "v100-32gb",
    "t4",
    "rtx-5090",
    "rtx-5080",
    "rtx-5070-ti",
    "rtx-4090",
    "rtx-4080",
    "rtx-4070-ti-super",
    "rtx-4070-ti",
    "rtx-4060-ti-16gb",
    "rtx-3090",
    "rtx-3090-ti",
    "rtx-3080-10gb",
    "rtx-3060-12gb",
    "rtx-2080-ti",
    "titan-rtx",
]
LABEL_GB = {
    "b200": 180,
    "h200": 141,
    "gh200-96gb": 96,
    "h100-80gb": 80,
    "h100-96gb": 96,
    "h100-pcie": 80,
    "h100-nvl": 94,
    "a100-pcie-80gb": 80,
    "l40s": 48,
    "l40": 48,
    "l4": 24,
    "a40": 48,
    "a30": 24,
    "a10": 24,
    "a10g": 24,
    "t4": 16,
    "rtx-pro-6000": 96,
    "rtx-6000-ada": 48,
    "a6000": 48,
    "a5000": 24,
    "a4000": 16,
    "rtx-5090": 32,
    "rtx-5080": 16,
    "rtx-5070-ti": 16,
    "rtx-4090": 24,
    "rtx-4080": 16,
    "rtx-4070-ti-super": 16,
    "rtx-4070-ti": 12,
    "rtx-3090": 24,
    "rtx-3090-ti": 24,
    "rtx-2080-ti": 11,
    "titan-rtx": 24,
}
every_gpu = pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)


def _label_gb(gpu: Gpu) -> int:
    return LABEL_GB.get(gpu.name) or int(gpu.name.rsplit("-", 1)[1].removesuffix("gb"))


def test_every_gpu_people_train_on_is_there_once() -> None:
    assert sorted(gpu.name for gpu in GPUS) == sorted(ASKED_FOR)


def test_a_gpus_own_name_is_found_whatever_it_was_called() -> None:
    assert [own_name(gpu.name) for gpu in GPUS] == [gpu.name for gpu in GPUS]
    assert own_name("NVIDIA GeForce RTX 4090") == "rtx-4090"
    with pytest.raises(UsageError, match="unknown GPU"):
        own_name('h200"\nfull_name = "')


def test_no_spelling_means_two_gpus() -> None:
    keys = [
        key
        for gpu in GPUS
        for key in {_key(spelling) for spelling in (gpu.name, gpu.full_name, *gpu.aliases)}
    ]
    assert len(keys) == len(set(keys))
    assert not set(keys) & set(catalogue().ambiguous)


@every_gpu
def test_total_memory_is_a_little_below_the_label(gpu: Gpu) -> None:
    assert 0.91 <= gpu.total_bytes / (_label_gb(gpu) * GiB) <= 1.0


@every_gpu
def test_the_context_leaves_most_of_the_memory_usable(gpu: Gpu) -> None:
    assert 300e6 <= gpu.context_bytes <= 700e6
    assert gpu.usable_bytes == gpu.total_bytes - gpu.context_bytes
    assert gpu.usable_bytes > 0.95 * gpu.total_bytes


@every_gpu
def test_multiprocessors_threads_and_bandwidth_are_plausible(gpu: Gpu) -> None:
    threads = {
        (7, 0): 2048,
        (7, 5): 1024,
        (8, 0): 2048,
        (8, 6): 1536,
        (8, 9): 1536,
        (9, 0): 2048,
        (10, 0): 2048,
        (12, 0): 1536,
    }
    assert gpu.max_threads_per_multiprocessor == threads[gpu.capability]
    assert 28 <= gpu.num_multiprocessors <= 192
    assert 250e9 <= gpu.bandwidth_bytes_per_second <= 8e12


@every_gpu
def test_fp32_is_what_the_cores_give_at_a_plausible_clock(gpu: Gpu) -> None:
    cores = 64 if gpu.capability in {(7, 0), (7, 5), (8, 0)} else 128
    fp32 = gpu.flops_per_second["fp32"]
    assert fp32 is not None
    assert 1.3e9 <= fp32 / (gpu.num_multiprocessors * cores * 2) <= 2.75e9


@every_gpu
def test_rates_exist_where_the_hardware_has_them(gpu: Gpu) -> None:
    present = {kind for kind, rate in gpu.flops_per_second.items() if rate is not None}
    expected = {"fp32", "fp16"}
    expected |= {"tf32", "bf16"} if gpu.capability >= (8, 0) else set()
    expected |= {"fp8"} if gpu.capability >= (8, 9) else set()
    assert set(gpu.flops_per_second) == {"fp32", "tf32", "bf16", "fp16", "fp8"}
    assert present == expected


@every_gpu
def test_dense_tensor_rates_double_as_the_type_halves(gpu: Gpu) -> None:
    tf32, bf16, fp16, fp8 = (gpu.flops_per_second[kind] for kind in ("tf32", "bf16", "fp16", "fp8"))
    if tf32 is not None and bf16 is not None:
        assert bf16 == fp16
        assert bf16 == pytest.approx(2 * tf32, rel=0.02)
    if fp8 is not None:
        assert fp8 == pytest.approx(2 * (bf16 or 0), rel=0.02)


def _tensor_flops_per_clock(gpu: Gpu) -> float:
    """Dense fp16 operations per multiprocessor and clock, from the ratio to the fp32 rate."""
    cores = 64 if gpu.capability in {(7, 0), (7, 5), (8, 0)} else 128
    fp16, fp32 = gpu.flops_per_second["fp16"], gpu.flops_per_second["fp32"]
    assert fp16 is not None and fp32 is not None
    return fp16 / fp32 * cores * 2


@every_gpu
def test_tensor_rates_are_dense_and_with_fp32_accumulation(gpu: Gpu) -> None:
    per_clock = _tensor_flops_per_clock(gpu)
    halved = gpu.full_name.startswith("NVIDIA GeForce") or gpu.name in {"a10g", "l40"}
    expected = {7: 1024, 8: 1024, 9: 4096, 10: 8192, 12: 1024}[gpu.capability[0]]
    if gpu.capability == (8, 0):
        expected = 2048
    assert per_clock == pytest.approx(expected / 2 if halved else expected, rel=0.15)


@every_gpu
def test_only_the_h200_claims_to_be_measured(gpu: Gpu) -> None:
    assert gpu.measured == (gpu.name == "h200")
    assert gpu.source.startswith("measured: ") == gpu.measured
    assert gpu.measured or gpu.source[-4:].isdigit()


def test_the_h200_carries_the_numbers_that_were_measured() -> None:
    h200 = find_gpu("h200")
    assert (h200.total_bytes, h200.context_bytes, h200.capability) == (
        150_109_880_320,
        648_871_936,
        (9, 0),
    )
    assert (h200.num_multiprocessors, h200.max_threads_per_multiprocessor) == (132, 2048)
    assert h200.bandwidth_bytes_per_second == 4.8e12
    assert h200.flops_per_second == {
        "fp32": 67e12,
        "tf32": 494e12,
        "bf16": 989e12,
        "fp16": 989e12,
        "fp8": 1979e12,
    }
    assert h200.source == "measured: torch 2.11, driver 580, CUDA 13.0"


@every_gpu
def test_a_gpu_is_hashable_picklable_and_turns_into_json(gpu: Gpu) -> None:
    assert {gpu: 1}[pickle.loads(pickle.dumps(gpu))] == 1
    assert json.loads(json.dumps(dataclasses.asdict(gpu)))["name"] == gpu.name


@every_gpu
def test_a_gpu_is_found_by_every_one_of_its_names(gpu: Gpu) -> None:
    for spelling in (gpu.name, gpu.full_name, *gpu.aliases):
        assert find_gpu(spelling) is gpu


@given(
    st.sampled_from(GPUS),
    st.sampled_from(["", " ", "_", "-"]),
    st.sampled_from(["", "NVIDIA ", "nvidia GeForce "]),
    st.booleans(),
)
def test_case_separators_and_brand_do_not_matter(
    gpu: Gpu, separator: str, brand: str, upper: bool
) -> None:
    spelling = brand + gpu.name.replace("-", separator)
    assert find_gpu(spelling.upper() if upper else spelling) is gpu


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("h100", "h100-80gb"),
        ("H100 SXM", "h100-80gb"),
        ("4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("geforce_rtx_3090_ti", "rtx-3090-ti"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("NVIDIA Tesla T4", "t4"),
        ("RTX A6000", "a6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("  l40s  ", "l40s"),
    ],
)
def test_names_as_people_and_torch_write_them_are_found(spelling: str, name: str) -> None:
    assert find_gpu(spelling).name == name


@pytest.mark.parametrize(
    "family", [*catalogue().ambiguous, "NVIDIA A100", "Tesla V100", "RTX 6000"]
)
def test_a_family_name_is_refused_with_its_members_and_their_sizes(family: str) -> None:
    with pytest.raises(UsageError) as refusal:
        find_gpu(family)
    assert refusal.value.exit_code == 2
    assert repr(family) in refusal.value.message
    for candidate in catalogue().ambiguous[_key(family)]:
        assert f"{candidate} (" in refusal.value.advice
    assert "--memory" in refusal.value.advice


def test_every_member_of_a_family_is_a_known_gpu() -> None:
    assert {name for members in catalogue().ambiguous.values() for name in members} <= {
        gpu.name for gpu in GPUS
    }


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("rtx-4091", "rtx-4090"),
        ("h10", "h100-80gb"),
        ("rtx 3080 12gb", "rtx-3080-10gb"),
        ("l400", "l40"),
    ],
)
def test_an_unknown_name_is_answered_with_close_matches(typo: str, meant: str) -> None:
    with pytest.raises(UsageError) as refusal:
        find_gpu(typo)
    assert meant in refusal.value.advice.split("Known GPUs")[0]


@pytest.mark.parametrize("name", ["mi300x", "", "  ", "rtx", "nvidia", "zzzz"])
def test_an_unknown_name_is_refused_with_all_known_names_and_the_way_out(name: str) -> None:
    with pytest.raises(UsageError) as refusal:
        find_gpu(name)
    assert refusal.value.exit_code == 2
    assert repr(name) in refusal.value.message
    assert all(gpu.name in refusal.value.advice for gpu in GPUS)
    assert "--memory SIZE" in refusal.value.advice


def test_importing_the_table_imports_no_torch() -> None:
    program = "import sys, vramcast.hardware.gpus, vramcast.units; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, check=False
        ).returncode
        == 0
    )


NEW = """
[[gpu]]
name = "z900"
full_name = "NVIDIA Z900"
aliases = []
capability = "9.0"
total_bytes = 1_000_000_000
num_multiprocessors = 1
bandwidth_bytes_per_second = 1e9
l2_cache_bytes = 1_000_000
flops_per_second = { bf16 = 2.5e12 }
context_bytes = 1_000
source = "a dream, 2026"
"""


def test_a_gpu_is_added_by_adding_a_block_to_the_file(tmp_path: Path) -> None:
    edited = tmp_path / "gpus.toml"
    edited.write_text(FILE.read_text() + NEW)
    gpu = catalogue(edited).by_name["z900"]
    assert (gpu.architecture, gpu.capability, gpu.usable_bytes) == ("Hopper", (9, 0), 999_999_000)
    assert gpu.flops_per_second == {
        **dict.fromkeys(("fp32", "tf32", "fp16", "fp8")),
        "bf16": 2.5e12,
    }
    assert not gpu.measured


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ('name = "z900"', "name = 900"),
        ('name = "z900"', ""),
        ("total_bytes = 1_000_000_000", "total_bytes = -1"),
        ("bandwidth_bytes", "bandwith_bytes"),
        ('capability = "9.0"', 'capability = "13.0"'),
        ("flops_per_second = {", "flops_per_second = {{"),
        ("bf16 = 2.5e12", "bf16 = -1"),
    ],
)
def test_a_slip_in_the_file_is_told_with_the_files_name(
    found: str, wrong: str, tmp_path: Path
) -> None:
    edited = tmp_path / "gpus.toml"
    edited.write_text(FILE.read_text() + NEW.replace(found, wrong))
    with pytest.raises(UsageError, match=r"gpus\.toml"):
        catalogue(edited)
