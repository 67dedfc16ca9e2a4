"""The names of classifiers of images that installed packages know. A task for another process."""

from __future__ import annotations

from typing import Any

from vramcast_zoo.refusal import Refused, need


def answer(request: dict[str, Any], _: object = None) -> dict[str, Any]:
    source = request["source"]
    try:
        package = need(source, f"{source}:")
    except Refused:
        return {"missing": True, "names": []}
    if source == "timm":
        return {"missing": False, "names": list(package.list_models())}
    names = package.models.list_models(module=package.models)
    return {"missing": False, "names": list(names)}
