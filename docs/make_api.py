"""Writes docs/reference/api.md: the public names, their signatures, and what their docstrings say.

python -m docs.make_api
"""

from __future__ import annotations

import enum
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

PAGE = Path(__file__).parent / "reference" / "api.md"
HEAD = """# Public names

Made from signatures and docstrings by `make api`; a test holds it to the code. What is not here may change any time.
[options.md](options.md) explains the arguments of `segreader.scan`; [loader.md](../how-to/loader.md) shows the loader.
"""
MODULES = (
    "segreader",
    "segreader.duckdb",
    "segreader.loader",
    "segreader.polars",
    "segreader.schemas",
    "segreader.spark",
    "segreader.testing",
)
WIDTH = 110
_SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")


def public_modules() -> list[ModuleType]:
    """The modules that users import."""
    return [importlib.import_module(name) for name in MODULES if importlib.util.find_spec(name) is not None]


def public_names(module: ModuleType) -> dict[str, Any]:
    """What a module makes public, in order, without its version: ``__all__``, or what it defines itself."""
    own = [name for name, one in vars(module).items() if getattr(one, "__module__", None) == module.__name__]
    names = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
    return {name: getattr(module, name) for name in sorted(names) if not name.startswith("__")}


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class that this library wrote, its bases included."""
    found: dict[str, Any] = {}
    for base in owner.__mro__:
        if base.__module__.startswith("segreader"):
            for name, value in vars(base).items():
                if not name.startswith("_") and _is_member(value):
                    found.setdefault(name, value)
    yield from found.items()


def docstring(of: Any) -> str | None:
    """What someone wrote there; not what dataclasses, enums and bases outside bring."""
    text = inspect.unwrap(of).__doc__ if callable(of) and not inspect.isclass(of) else of.__doc__
    if inspect.isclass(of) and (text is None or text.startswith(f"{of.__name__}(")):
        return None
    return None if text is None else inspect.cleandoc(text)


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for module in public_modules():
        names = public_names(module)
        errors = {name: one for name, one in names.items() if inspect.isclass(one) and issubclass(one, Exception)}
        parts.append(f"## {module.__name__}\n")
        parts.append(_prose((docstring(module) or "").partition("\n\n")[0]))
        parts += [_described(name, one) for name, one in names.items() if name not in errors]
        if errors:
            rows = [f"| `{name}` | {_bases(one)} | {_prose(_first(one))} |" for name, one in errors.items()]
            parts.append(
                "\n".join(
                    [f"### Errors of {module.__name__}\n", "| name | is a | when |", "| --- | --- | --- |", *rows]
                )
            )
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _described(name: str, one: Any) -> str:
    if not inspect.isclass(one):
        return f"### {name}\n\n{_code(name, inspect.signature(one))}\n\n{_markdown(docstring(one))}"
    if issubclass(one, enum.Enum):
        rows = [f"- `{name}.{member.name}`: `{member.value!r}`" for member in one]
        return "\n\n".join([f"### {name}", _markdown(docstring(one)), "\n".join(rows)])
    parts = [f"### {name}", _code(name, _signature(one)), _markdown(docstring(one))]
    for member, value in members(one):
        if isinstance(value, property):
            parts.append(f"**`{name}.{member}`**{_returns(value.fget)}\n\n{_markdown(docstring(value))}")
        elif not callable(value) and not isinstance(value, classmethod | staticmethod):
            parts.append(f"**`{name}.{member}`**\n\n{_markdown(docstring(value))}")
        else:
            bound = getattr(one, member)
            signature = inspect.signature(bound)
            if not isinstance(value, classmethod | staticmethod):
                signature = signature.replace(parameters=list(signature.parameters.values())[1:])
            parts.append(f"{_code(f'{name}.{member}', signature)}\n\n{_markdown(docstring(bound))}")
    return "\n\n".join(parts)


def _is_member(value: Any) -> bool:
    return isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)


def _signature(owner: type) -> inspect.Signature:
    signature = inspect.signature(owner.__init__)  # type: ignore[misc]  # of this very class
    parameters = list(signature.parameters.values())[1:]
    return signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)


def _code(name: str, signature: inspect.Signature) -> str:
    parameters: list[str] = []
    seen_keyword = False
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not seen_keyword:
            seen_keyword = True
            parameters.append("*")
        if one.kind is one.VAR_POSITIONAL:
            seen_keyword = True
        parameters.append(_parameter(one))
    end = f" -> {_annotation(signature.return_annotation)}"
    end = "" if signature.return_annotation is inspect.Signature.empty else end
    line = f"{name}({', '.join(parameters)}){end}"
    if len(line) > WIDTH:
        line = "\n".join([f"{name}(", *(f"    {one}," for one in parameters), f"){end}"])
    return f"```text\n{line}\n```"


def _parameter(one: inspect.Parameter) -> str:
    stars = "**" if one.kind is one.VAR_KEYWORD else "*" if one.kind is one.VAR_POSITIONAL else ""
    text = f"{stars}{one.name}"
    if one.annotation is not one.empty:
        text += f": {_annotation(one.annotation)}"
    if one.default is not one.empty:
        text += f" = {_default(one.default)}" if one.annotation is not one.empty else f"={_default(one.default)}"
    return text


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    shown = repr(value)
    return "…" if shown.startswith("<") else shown


def _returns(getter: Any) -> str:
    annotation = inspect.signature(getter).return_annotation
    return "" if annotation is inspect.Signature.empty else f" → `{_annotation(annotation)}`"


def _bases(error: type) -> str:
    return ", ".join(f"`{base.__name__}`" for base in error.__bases__)


def _first(of: Any) -> str:
    return " ".join((docstring(of) or "").partition("\n\n")[0].split())


def _markdown(text: str | None) -> str:
    """A docstring with its sections as lists."""
    lines: list[str] = []
    in_section = False
    for line in (text or "").splitlines():
        heading = re.fullmatch(rf"({'|'.join(_SECTIONS)}):(.*)", line)
        if heading is not None:
            in_section = True
            lines += ["", f"*{heading[1]}*" + (f": {_prose(heading[2].strip())}" if heading[2].strip() else ""), ""]
        elif in_section and line.startswith("    "):
            is_item = line[4] != " " and re.match(r"    [\w, *.]+: ", line) is not None
            lines.append(
                _item(line) if is_item else f"  {_prose(line.strip())}" if _in_list(lines) else _prose(line[4:])
            )
        else:
            in_section = in_section and not line
            lines.append(_prose(line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _in_list(lines: list[str]) -> bool:
    return bool(lines) and lines[-1].startswith(("- ", "  "))


def _item(line: str) -> str:
    name, _, rest = line.strip().partition(": ")
    return f"- `{name}`: {_prose(rest)}"


def _prose(text: str) -> str:
    return text.replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
