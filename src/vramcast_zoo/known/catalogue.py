"""The names of known models, and where the configuration of each is.

No torch is imported: this is what lists and looks up names.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from vramcast_zoo.known.tasks import usual_task
from vramcast_zoo.refusal import Refused

# What comes before the colon, and the package that the models are of.
PACKAGES = {"hf": "transformers", "timm": "timm", "torchvision": "torchvision"}
CONFIGURATION = "config.json"
# Where it lies; a pipeline of diffusers has several, and this part is what is trained.
PARTS = ("", "unet", "transformer")


@dataclass(frozen=True)
class KnownModel:
    """A model of Hugging Face's hub: what its config.json says."""

    name: str
    settings: Mapping[str, Any]
    parameters: int = 0
    also: tuple[str, ...] = ()  # names of models with the same configuration
    source: str = ""
    folder: str = ""  # that has the config.json, if it is not one of those that come with the zoo
    task: str = field(default="", compare=False)

    @property
    def type(self) -> str:
        return str(self.settings.get("model_type") or self.settings.get("_class_name", ""))


def split(text: str) -> tuple[str, str] | None:
    """`hf:gpt2` -> ("hf", "gpt2"); None for what is no name of a known model."""
    source, colon, name = text.partition(":")
    return (source, name) if colon and source in PACKAGES else None


@cache
def shipped() -> dict[str, KnownModel]:
    """The models that come with the zoo, by name."""
    data = tomllib.loads(Path(__file__).with_name("models.toml").read_text())
    found = {}
    for family in data.values():
        common = family.get("common", {})
        for name, own in family["models"].items():
            own = dict(own)
            facts = {"parameters": own.pop("parameters"), "also": tuple(own.pop("also", ()))}
            settings = {
                key: None if value == "null" else value for key, value in {**common, **own}.items()
            }
            task = usual_task(settings)
            found[name] = KnownModel(name, settings, source=family["source"], task=task, **facts)
    return found


def check(source: str, name: str) -> None:
    """Refuses a name that is wrong whatever is installed."""
    if source == "hf":
        find(name)
    elif not name:
        raise Refused(f"{source}: names no model.", f"For example {source}:resnet50.")


def find(name: str) -> KnownModel:
    """The model of this name: of a folder, of the user's cache, or one that comes with the zoo."""
    if not name:
        raise Refused("hf: names no model.", "For example hf:gpt2; `vramcast zoo hf` lists them.")
    folder = os.path.expanduser(name)
    if os.path.isdir(folder):
        return _of_folder(name, Path(folder))
    if cached := _cached(name):
        return _of_folder(name, cached)
    if known := _by_any_name().get(name.lower()):
        return known
    if "/" in name and not name.startswith((".", "/", "~")):
        where = "is neither in this machine's Hugging Face cache nor comes with vramcast"
        fetch = (
            f"Fetch its configuration once: hf download {name} {CONFIGURATION} (a gated one after "
            "hf auth login)."
        )
        raise Refused(f"{name} {where}.", f"{_hint(name)}{fetch}")
    raise Refused(
        f"There is no known model {name!r}.",
        f"{_hint(name)}`vramcast zoo hf` lists the names; a folder with a {CONFIGURATION} is "
        "named as hf:path/to/folder.",
    )


def all_names() -> list[str]:
    return [name for model in shipped().values() for name in (model.name, *model.also)]


@cache
def _by_any_name() -> dict[str, KnownModel]:
    """Also by its name without the owner's, in any case; of two, the first listed has it."""
    found: dict[str, KnownModel] = {}
    for model in shipped().values():
        for name in (model.name, *model.also):
            found.setdefault(name.lower(), model)
    for model in shipped().values():
        for name in (model.name, *model.also):
            found.setdefault(name.rpartition("/")[2].lower(), model)
    return found


def _hint(name: str) -> str:
    close = close_names(name, all_names())
    return f"Did you mean {' or '.join(close)}? " if close else ""


def close_names(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Compared without the owner's name too: Llama-3-8b is near meta-llama/Meta-Llama-3-8B."""
    by_word = {word.lower(): one for one in known for word in (one.rpartition("/")[2], one)}
    close = difflib.get_close_matches(name.lower(), by_word, n=2 * most, cutoff=0.7)
    close += difflib.get_close_matches(name.lower().rpartition("/")[2], by_word, n=most, cutoff=0.7)
    return list(dict.fromkeys(by_word[word] for word in close))[:most]


def _cached(name: str) -> Path | None:
    """The folder of the newest snapshot that has a configuration."""
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface"
    )
    hub = Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))
    snapshots = hub / f"models--{name.replace('/', '--')}" / "snapshots"
    try:
        found = [
            folder / part
            for folder in snapshots.iterdir()
            for part in PARTS
            if (folder / part / CONFIGURATION).is_file()
        ]
        return max(found, key=lambda folder: folder.stat().st_mtime, default=None)
    except OSError:
        return None


def _of_folder(name: str, folder: Path) -> KnownModel:
    file = folder / CONFIGURATION
    if not file.is_file():
        raise Refused(f"The folder {str(folder)!r} has no {CONFIGURATION}.", "Name one that has.")
    try:
        settings = json.loads(file.read_text())
        known = isinstance(settings, dict) and (
            "model_type" in settings or "_class_name" in settings
        )
    except (OSError, ValueError) as error:
        raise Refused(f"{file} cannot be read: {error}.", "Fetch it again.") from None
    if not known:
        raise Refused(f"{file} names no model_type.", "It must be a model's own configuration.")
    task = usual_task(settings)
    return KnownModel(name, settings, source=str(file), folder=str(folder), task=task)
