"""Values and mappings as TOML text, as `tomllib` reads it back.

The standard library reads TOML and does not write it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def toml_text(content: Mapping[str, Any]) -> str:
    """Return plain values first, then a table for each mapping.

    None is left out.
    """
    plain = {
        name: value
        for name, value in content.items()
        if not isinstance(value, Mapping) and value is not None
    }
    tables = {name: value for name, value in content.items() if isinstance(value, Mapping)}
    return (
        "\n".join(
            [
                *_lines(plain),
                *(
                    line
                    for name, table in tables.items()
                    for line in ("", f"[{name}]", *_lines(table))
                ),
            ]
        )
        + "\n"
    )


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        if value is not None:
            yield f"{_key(name)} = {_array(value) if _is_long(value) else inline(value)}"


def _is_long(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(item, Mapping) for item in value)


def _array(items: Sequence[Any]) -> str:
    """Return an array with one item a line."""
    return "[\n" + "".join(f"  {inline(item)},\n" for item in items) + "]"


def inline(value: object) -> str:
    """Return any value on one line."""
    if isinstance(value, Mapping):
        pairs = [f"{_key(key)} = {inline(item)}" for key, item in value.items() if item is not None]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline, value))}]"
    return (
        quoted(value) if isinstance(value, str) else json.dumps(value)
    )  # numbers and booleans are spelt alike in both


def quoted(text: str) -> str:
    """Return a basic string.

    JSON's escapes are among TOML's; DEL is escaped here too.
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return (
        name
        if name.replace("_", "").replace("-", "").isalnum() and name.isascii()
        else quoted(name)
    )
