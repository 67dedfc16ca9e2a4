"""What `vramcast zoo` shows: models of the zoo and others known by name, or the knobs of one."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vramcast.errors import UsageError
from vramcast.workload import parse_reference, refusals

if TYPE_CHECKING:
    from vramcast.reporting.sections import Cell

Row = Mapping[str, Any]


def show_models(name: str | None, as_json: bool) -> None:
    """Shows all models, those whose names contain a word, or the knobs of the model named."""
    from vramcast_zoo.catalogue import BY_NAME, ENTRIES
    from vramcast_zoo.known.catalogue import split
    from vramcast_zoo.sizing import FAMILIES

    if name is None:
        _list([*_of_zoo(), *_of_hub()], as_json)
    elif name in ("hf", "timm", "torchvision"):
        _list(_of_hub() if name == "hf" else _of_package(name), as_json)
    elif name in FAMILIES:
        own = [row for row in _of_zoo() if row["family"] == name]
        _list([*own, *_with_word(_of_hub(), name)], as_json)
    elif name in BY_NAME or split(name):
        show_knobs(name, as_json)
    elif (known := _exactly(name)) is not None:
        show_knobs(f"hf:{known}", as_json)
    else:
        found = _with_word([*_of_zoo(), *_of_hub()], name)
        if not found:
            raise _nothing(name, [one.name for one in ENTRIES])
        _list(found, as_json)


def _with_word(rows: list[dict[str, Any]], word: str) -> list[dict[str, Any]]:
    return [row for row in rows if any(word.lower() in one.lower() for one in _names(row))]


def _exactly(name: str) -> str | None:
    from vramcast_zoo.known.catalogue import all_names

    found = [one for one in all_names() if name.lower() in (one.lower(), _short(one).lower())]
    return found[0] if found else None


def _short(name: str) -> str:
    return name.rpartition("/")[2]


def _nothing(name: str, own: list[str]) -> UsageError:
    from vramcast_zoo.known.catalogue import all_names, close_names
    from vramcast_zoo.sizing import FAMILIES

    close = close_names(name, [*own, *(f"hf:{one}" for one in all_names())])
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    return UsageError(
        f"There is no family {name!r}, and no model has that in its name.",
        f"{hint}Families: {', '.join(FAMILIES)}, hf, timm, torchvision.",
    )


def _of_zoo() -> list[dict[str, Any]]:
    from vramcast_zoo.catalogue import DOCUMENTS, ENTRIES

    return [
        {
            "name": entry.name,
            "family": entry.family,
            "num_parameters": entry.parameters,
            "sizes": entry.all_sizes,
            "document": entry.document,
            "document_title": DOCUMENTS[entry.document] if entry.document else None,
            "shown": entry.sizes,
        }
        for entry in ENTRIES
    ]


def _of_hub() -> list[dict[str, Any]]:
    from vramcast_zoo.known.catalogue import shipped

    return [
        {
            "name": f"hf:{model.name}",
            "family": model.type,
            "num_parameters": model.parameters,
            "task": model.task,
            "also": [f"hf:{name}" for name in model.also],
            "source": model.source,
        }
        for model in shipped().values()
    ]


def _of_package(source: str) -> list[dict[str, Any]]:
    """The names that an installed package knows, found in another process."""
    from vramcast.processes.ask import ask

    names = ask("vramcast_zoo.known.listing:answer", {"source": source}, timeout_seconds=120.0)
    if names["missing"]:
        raise UsageError(f"{source} is not installed.", f"pip install {source}")
    return [{"name": f"{source}:{name}"} for name in names["names"]]


def _names(row: Row) -> list[str]:
    return [row["name"], row.get("family", ""), *row.get("also", ())]


def _list(rows: Sequence[Row], as_json: bool) -> None:
    if as_json:
        print(json.dumps([{k: v for k, v in row.items() if k != "shown"} for row in rows]))
        return
    from vramcast.reporting.sections import Section, knobs_of, table_of
    from vramcast.reporting.showing import show

    own = [row for row in rows if "document" in row]
    known = [row for row in rows if "document" not in row]
    parts: list[Any] = []
    common: dict[str, Cell] = {
        "name": lambda row: row["name"],
        "parameters": lambda row: f"{row['num_parameters']:,}" if "num_parameters" in row else "",
        "family": lambda row: row.get("family", ""),
    }
    if own:
        cells = {**common, "sizes": lambda row: knobs_of(row["shown"])}
        parts.append(table_of(own, cells, left=set(cells) - {"parameters"}))
    if known:
        cells = {**common, "task": lambda row: row.get("task", "")}
        parts.append(table_of(known, cells, left=set(cells) - {"parameters"}))
    show([Section(title="Models", parts=parts)])
    print("Predict one:    vramcast predict NAME batch_size=8 --gpu h200")
    print("Its knobs:      vramcast zoo NAME")
    if own:
        print("Find a size:    vramcast zoo e5 --params 50M --dim 1536")
    if any(row["name"].startswith("hf:") for row in known):
        print("Others: hf:NAME of your Hugging Face cache, hf:path/to/folder, timm:, torchvision:")


def show_knobs(name: str, as_json: bool) -> None:
    from vramcast.predicting.description import knobs_of_workload

    with refusals():
        parse_reference(name)
    knobs, facts = knobs_of_workload(name), _facts(name)
    if as_json:
        print(json.dumps({"name": name, **facts, "knobs": knobs}))
        return
    print("; ".join([name, *(f"{key}: {value}" for key, value in facts.items())]))
    if not knobs:
        print("It has no knobs: its function takes no keyword arguments.")
        return
    _list_knobs(name, knobs)
    usual = "batch_size" if any(knob["name"] == "batch_size" for knob in knobs) else ""
    example = f"{usual}=8" if usual else f"{knobs[0]['name']}=..."
    print(f"vramcast predict {name} {example} --gpu rtx-4090")


def show_knobs_of_line(words: list[str], as_json: bool) -> None:
    """Shows the knobs of a launch line, which are its names in braces."""
    from vramcast.workload.launch_line import launch_line

    line = launch_line(words)
    knobs = [
        {"name": name, "default": None, "takes": "any", "required": True} for name in line.knobs
    ]
    if as_json:
        print(json.dumps({"name": str(line), "knobs": knobs}))
        return
    print(line)
    if not knobs:
        print(
            "It has no knobs. Put a name in braces where a value stands: --batch_size={batch_size}"
        )
        return
    _list_knobs(str(line), knobs)
    given = " ".join(f"{name}=..." for name in line.knobs)
    print(f"vramcast predict {given} --gpu rtx-4090 -- {line}")


def _list_knobs(title: str, knobs: Sequence[Row]) -> None:
    from vramcast.reporting.sections import Section, table_of
    from vramcast.reporting.showing import show

    cells: dict[str, Cell] = {
        "knob": lambda knob: knob["name"],
        "default": lambda knob: "required" if knob["required"] else _default(knob["default"]),
        "takes": lambda knob: knob["takes"],
    }
    show([Section(title=title, parts=[table_of(knobs, cells, left=set(cells))])])


def _default(value: object) -> str:
    return "none" if value is None else str(value)


def _facts(name: str) -> dict[str, str]:
    from vramcast_zoo.catalogue import BY_NAME
    from vramcast_zoo.known.catalogue import find, split

    if name in BY_NAME:
        return {"parameters": f"{BY_NAME[name].parameters:,}"}
    source, model = split(name) or ("", "")
    if source != "hf":
        return {}
    found = find(model)
    size = {"parameters": f"{found.parameters:,}"} if found.parameters else {}
    return {**size, "family": found.type, "from": found.source}
