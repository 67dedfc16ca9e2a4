"""The examples at a tiny size on a CPU: their models, and their steps on another device."""

from __future__ import annotations

import py_compile
from pathlib import Path
from typing import Any

import pytest

from vramcast.workload import Text, bind_knobs, check_step, load_function, parse_reference

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY: dict[str, dict[str, str]] = {
    "gpt": {
        "batch_size": "2",
        "seq_len": "8",
        "width": "16",
        "depth": "2",
        "heads": "2",
        "vocabulary": "32",
    },
    "huggingface": {
        "batch_size": "2",
        "seq_len": "8",
        "hidden_size": "16",
        "intermediate_size": "32",
        "layers": "2",
        "heads": "2",
        "key_value_heads": "1",
        "vocab_size": "32",
    },
    "recurrent": {"batch_size": "2", "seq_len": "8", "width": "16", "depth": "2"},
}


def load(name: str) -> Any:
    if name == "huggingface":
        pytest.importorskip("transformers")
    return load_function(parse_reference(f"{EXAMPLES / name}.py"))


def run(name: str, monkeypatch: pytest.MonkeyPatch, **more: str) -> Any:
    build = load(name)
    monkeypatch.setitem(build.__globals__, "DEVICE", torch.device("cpu"))
    knobs = {key: Text(value) for key, value in {**TINY[name], **more}.items()}
    step = check_step(build(**bind_knobs(build, knobs)))
    step()
    return step()


def trains(model: Any, *arguments: Any) -> bool:
    model(*arguments).backward()
    return all(
        parameter.grad is not None and parameter.grad.isfinite().all()
        for parameter in model.parameters()
    )


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_compiles_and_is_short(path: Path, tmp_path: Path) -> None:
    py_compile.compile(str(path), cfile=str(tmp_path / "compiled"), doraise=True)
    assert len(path.read_text().splitlines()) < 120


@pytest.mark.parametrize("name", TINY)
def test_an_example_says_its_knobs_and_all_have_defaults(name: str) -> None:
    knobs = bind_knobs(load(name), {})
    assert {type(knobs["batch_size"]), type(knobs["seq_len"])} == {int}


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_gpt_model_goes_forward_and_backward(checkpointing: bool) -> None:
    model = load("gpt").__globals__["GPT"](32, 8, 16, 2, 2)
    model.checkpointing = checkpointing
    tokens = torch.randint(32, (2, 9))
    assert trains(model, tokens[:, :-1], tokens[:, 1:])


def test_the_gpt_of_the_defaults_has_the_size_of_gpt_2() -> None:
    with torch.device("meta"):
        model = load("gpt").__globals__["GPT"](50304, 1024, 768, 12, 12)
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(
        124e6, rel=0.01
    )


def test_the_recurrent_model_goes_forward_and_backward() -> None:
    tokens = torch.randint(256, (2, 9))
    assert trains(load("recurrent").__globals__["ByteModel"](16, 2), tokens[:, :-1], tokens[:, 1:])


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_llama_uses_the_attention_that_was_asked_for(attention: str) -> None:
    make_model = load("huggingface").__globals__["make_model"]
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "layers": 1,
        "heads": 2,
        "key_value_heads": 1,
        "vocab_size": 32,
        "seq_len": 8,
    }
    model = make_model(**sizes, attention=attention)
    assert model.config._attn_implementation == attention and model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.filterwarnings(
    "ignore:mkldnn_matmul failed"
)  # a CPU without bfloat16 says so at length
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("gpt", {}),
        ("gpt", {"precision": "fp32", "optimizer": "sgd"}),
        ("gpt", {"precision": "bf16", "checkpointing": "yes", "optimizer": "adamw-fused"}),
        ("huggingface", {}),
        ("huggingface", {"precision": "bf16", "checkpointing": "yes", "fused": "no"}),
        ("huggingface", {"precision": "fp32", "attention": "eager"}),
        ("recurrent", {}),
    ],
)
def test_a_step_of_an_example_returns_a_finite_loss(
    name: str, more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = run(name, monkeypatch, **more)
    assert loss.shape == () and not loss.requires_grad and loss.isfinite()


def test_a_width_that_the_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="width=10 is not a multiple of heads=3"):
        load("gpt")(width=10, heads=3)
