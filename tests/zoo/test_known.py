"""Models known by name: found, refused with a reason, and built from their configuration."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import in_process
import pytest
import torch

from vramcast import predict
from vramcast.workload.configuration import Configuration
from vramcast_zoo import refusal
from vramcast_zoo.known import adapters, catalogue
from vramcast_zoo.known.configurations import configuration, longest, model_class, tasks_of
from vramcast_zoo.known.huggingface import untie
from vramcast_zoo.known.tasks import sizes_of
from vramcast_zoo.known.workloads import workload
from vramcast_zoo.optimizers import make_optimizer
from vramcast_zoo.refusal import Refused, need


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What this machine's user has fetched must not matter."""
    hub = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    return hub


def write_configuration(folder: Path, **settings: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


# Taken, though they are not among the fields of the configuration.
NO_FIELDS = {
    "num_labels",
    "partial_rotary_factor",
    "head_dim",
    "decoder_start_token_id",
    "norm_rel_ebd",
    "position_buckets",
    "share_att_key",
}


def test_at_least_sixty_models_are_shipped() -> None:
    assert len(catalogue.shipped()) >= 60
    assert len(set(catalogue.all_names())) == len(catalogue.all_names())


@pytest.mark.parametrize(
    "name", [name for name, model in catalogue.shipped().items() if model.task != "diffusion"]
)
def test_every_shipped_configuration_is_one_of_transformers(name: str) -> None:
    model = catalogue.find(name)
    config = configuration(model)
    assert model.task in tasks_of(config)
    sizes, most = sizes_of(model.settings, model.task), longest(config) or 2048
    assert max(sizes.get("seq_len", 1), sizes.get("target_len", 1)) <= most
    # a misspelt setting would be kept silently beside the default that it should have replaced
    known = {*type(config)().to_dict(), *type(config).attribute_map}
    assert set(model.settings) - known <= NO_FIELDS


@pytest.mark.parametrize("name", ["openai-community/gpt2", "google/flan-t5-small"])
def test_the_number_of_parameters_is_that_of_the_configuration(name: str) -> None:
    model = catalogue.find(name)
    config = configuration(model)
    with torch.device("meta"):
        made = model_class(model, config, model.task)._from_config(config)
    if model.settings.get("tie_word_embeddings") is False:
        untie(made)
    assert sum(p.numel() for p in made.parameters()) == model.parameters


def test_a_name_is_found_in_any_case_and_without_its_owner() -> None:
    found = catalogue.find("meta-llama/Llama-3.1-8B")
    assert catalogue.find("llama-3.1-8b") == catalogue.find("META-LLAMA/LLAMA-3.1-8B") == found
    assert catalogue.find("Llama-3.1-8B-Instruct") == found


def test_the_users_cache_comes_before_what_is_shipped(empty_cache: Path) -> None:
    snapshot = empty_cache / "models--meta-llama--Llama-3.1-8B" / "snapshots" / "abc"
    write_configuration(snapshot, model_type="llama", num_hidden_layers=3)
    found = catalogue.find("meta-llama/Llama-3.1-8B")
    assert (found.settings["num_hidden_layers"], found.folder) == (3, str(snapshot))


def test_a_folder_is_a_model(tmp_path: Path) -> None:
    folder = write_configuration(tmp_path / "mine", model_type="bert", hidden_size=96)
    found = catalogue.find(str(folder))
    assert (found.task, configuration(found).hidden_size) == ("masked", 96)


@pytest.mark.parametrize(
    ("content", "word"), [("{", "cannot be read"), ("[]", "no model_type"), ("{}", "no model_type")]
)
def test_a_folder_without_a_model_is_refused(tmp_path: Path, content: str, word: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(Refused, match=word):
        catalogue.find(str(tmp_path))


def test_an_unknown_name_says_which_are_close() -> None:
    with pytest.raises(Refused, match=r"Did you mean meta-llama/Llama-3.1-8B"):
        catalogue.find("meta-llama/Lama-3.1-8B")


def test_a_name_of_the_hub_says_how_to_fetch_its_configuration() -> None:
    with pytest.raises(Refused, match="hf download someone/some-model config.json"):
        catalogue.find("someone/some-model")


def test_a_type_that_transformers_lacks_is_refused(tmp_path: Path) -> None:
    folder = write_configuration(tmp_path / "new", model_type="next-year")
    with pytest.raises(Refused, match="no model of type 'next-year'"):
        configuration(catalogue.find(str(folder)))


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 128}
    folder = write_configuration(tmp_path / "tiny", model_type="llama", **sizes, **heads)
    return f"hf:{folder}"


def test_a_known_model_is_predicted_with_what_is_trained(tiny: str) -> None:
    found = predict(tiny, gpu="h200", batch_size=2, seq_len=32, checkpointing=True)
    # embedding and head; per block four projections of attention, three matrices, two norms; a norm
    block = 32 * (32 + 16 + 16 + 32) + 3 * 32 * 64 + 2 * 32
    assert found.num_parameters == found.num_trainable_parameters == 2 * 128 * 32 + 2 * block + 32
    assert (found.knobs["task"], found.knobs["lora"]) == ("causal", 0)


@pytest.mark.long
@pytest.mark.usefixtures("warm_simulations")
def test_a_sharded_model_is_never_whole_on_one_gpu(tiny: str) -> None:
    """Else a model that fits on eight GPUs would not fit while it is made."""
    found = predict(
        tiny, gpu="h200", parallel="fsdp2", world_size=8, ranks="0", batch_size=1, seq_len=16
    )
    assert found.num_parameters is not None
    assert found.phases[0].peak_allocated_bytes < found.num_parameters  # of 2 bytes each


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"task": "image"}, "is not trained for task=image"),
        ({"quantize": "nf4"}, "nothing is left to train"),
        ({"lora": -1}, "lora=-1 is no rank"),
        ({"accumulation": 0}, "accumulation=0 must be at least 1"),
        ({"task": "classification", "packing": True}, "packing=true is for task=causal"),
    ],
)
def test_knobs_that_cannot_be_had_are_refused(
    tiny: str, knobs: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        workload(tiny)(**knobs)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("hf:google/vit-base-patch16-224", "diffusion"),
        ("hf:stable-diffusion-v1-5/stable-diffusion-v1-5", "image"),
    ],
)
def test_images_are_not_enough_for_a_task(name: str, task: str) -> None:
    with pytest.raises(Refused, match=f"is not trained for task={task}"):
        workload(name)(task=task)


def test_what_a_model_refuses_is_wrong_usage_of_the_command(tiny: str) -> None:
    done = in_process.vramcast("predict", tiny, "task=image", "--gpu", "h200")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not trained for task=image" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:meta-llama/Lama-3.1-8B", "Did you mean meta-llama/Llama-3.1-8B"),
        ("hf:someone/gated", "hf download someone/gated config.json"),
        ("hf:", "hf: names no model"),
        ("timm:", "timm: names no model"),
    ],
)
def test_wrong_names_are_answered_with_one_message(name: str, message: str) -> None:
    done = in_process.vramcast("predict", name, "--gpu", "h200")
    assert (done.returncode, done.stdout) == (2, "") and message in done.stderr


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal, "find_spec", lambda name: None)
    with pytest.raises(Refused, match="lora=8 needs the package peft.*pip install peft"):
        need("peft", "lora=8")
    with pytest.raises(Refused, match="pip install liger-kernel"):
        need("liger-kernel", "liger=true", "liger_kernel.transformers.monkey_patch")


def test_a_package_that_lacks_another_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "half_installed.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(refusal.Refused, match="cannot be imported") as told:
        refusal.need("half-installed", "timm:x")
    assert told.value.advice == "pip install not_there_at_all"


def test_every_optimizer_of_torch_updates_all_weights() -> None:
    for name in ("adafactor", "muon", "sgd"):
        model = torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.Linear(4, 4))
        before = [p.detach().clone() for p in model.parameters()]
        optimizer = make_optimizer(name, list(model.parameters()), lr=0.1)
        model(torch.arange(8)).square().sum().backward()
        optimizer.step()
        changed = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
        assert all(changed), name
        optimizer.zero_grad(set_to_none=True)
        assert all(p.grad is None for p in model.parameters())


def test_a_configuration_of_a_known_model_can_be_pasted_into_a_script() -> None:
    lines = Configuration(knobs={"batch_size": 2}).python_lines("hf:gpt2")
    assert lines == [
        "from vramcast_zoo.known.workloads import workload",
        "step = workload('hf:gpt2')(batch_size=2)",
    ]


@pytest.mark.parametrize(
    ("why", "message"),
    [
        ("Target modules {'x'} not found in the base model.", "fits no layer of the model"),
        ("Module 'out_proj' is incompatible with Mamba", "'out_proj' is incompatible with Mamba"),
    ],
)
def test_why_peft_refuses_layers_is_said(
    why: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError(why)

    peft = SimpleNamespace(LoraConfig=dict, get_peft_model=refuse)
    monkeypatch.setattr(adapters, "need", lambda *_: peft)
    with pytest.raises(Refused, match=message) as refused:
        adapters.with_lora(torch.nn.Sequential(torch.nn.Linear(2, 2)), 8, "x", in_fp32=False)
    assert "Linear layers of this model: 0" in refused.value.advice


def test_layers_that_a_model_keeps_precise_are_not_quantized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = torch.nn.ModuleDict({"wi": torch.nn.Linear(2, 2), "wo": torch.nn.Linear(2, 2)})
    model._keep_in_fp32_modules = ["wo"]
    monkeypatch.setattr(adapters, "need", lambda *_: None)
    monkeypatch.setattr(adapters, "_few_bits", lambda *_: torch.nn.Identity())
    adapters.quantized(model, "nf4", torch.bfloat16, "cpu")
    assert [type(part).__name__ for part in model.values()] == ["Identity", "Linear"]


def test_what_a_mixture_does_not_quantize_is_said() -> None:
    dense = torch.nn.Linear(512, 512)
    assert adapters.remarks_on_width(dense) == []
    experts = torch.nn.Module()
    experts.gate = torch.nn.Parameter(torch.empty(8, 2**12, 2**13, device="meta"))
    (said,) = adapters.remarks_on_width(torch.nn.Sequential(dense, experts))
    assert said.startswith("1.0 GiB of weights are the experts of a mixture")
