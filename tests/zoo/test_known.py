"""Models known by name: found, refused with a reason, and built from their configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vramcast_zoo.known import catalogue
from vramcast_zoo.known.configurations import configuration, model_class
from vramcast_zoo.refusal import Refused


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


@pytest.mark.parametrize("name", list(catalogue.shipped()))
def test_every_shipped_configuration_is_one_of_transformers(name: str) -> None:
    model = catalogue.find(name)
    config = configuration(model)
    assert model_class(model, config, model.task).config_class is type(config)
    settings = config.to_dict()
    # a misspelt setting would be kept silently beside the default that it should have replaced
    defaults = type(config)().to_dict()
    assert {key for key in model.settings if key not in defaults} <= {"model_type"}
    assert settings["model_type"] == model.type


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
