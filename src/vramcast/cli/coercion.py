"""Options that are text, or have their default, are read without pydantic.

From 0.29 on, typer imports pydantic to read any option, which takes as long as the rest of a
command's start. Here pydantic is used only for text that must be converted.
"""

import contextlib
from typing import Any


def read_plain_values_without_pydantic() -> None:
    """Patches typer. Versions of typer that work in another way are left alone."""
    with contextlib.suppress(ImportError, AttributeError):
        from typer import _coercion, core

        theirs = _coercion.build_runtime_param
        if getattr(core, "build_runtime_param", None) is not theirs:
            return

        class Plain(_coercion.RuntimeParam):  # type: ignore[misc]
            def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
                if self.annotation == list[str] and all(isinstance(one, str) for one in value):
                    return list(value)
                if self.annotation in (str, bool, int, float) and type(value) is self.annotation:
                    return value
                descriptor = _coercion.resolve_type_descriptor(self.annotation, self.parameter_info)
                return theirs(descriptor)._coerce_value(value, param=param, ctx=ctx)

        def build(descriptor: Any) -> Any:
            has_parser = descriptor.parameter_info.parser is not None
            if has_parser or descriptor.annotation not in (str, bool, int, float, list[str]):
                return theirs(descriptor)
            return Plain(descriptor.parameter_info, descriptor.annotation)

        setattr(core, "build_runtime_param", build)  # noqa: B010
