"""/docs: the OpenAPI document as one plain page.

No script and nothing from elsewhere: hospital networks have no way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#1b1b1b;background:#fff}
h2{margin-top:2.5rem;font-size:1.1rem}code,h2{font-family:ui-monospace,monospace}b{font-family:system-ui,sans-serif}
table{border-collapse:collapse;width:100%}
td{border-top:1px solid #ddd;padding:.25rem .75rem .25rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}td{border-color:#444}a{color:#8ab4f8}}"""


def render(document: Mapping[str, Any]) -> str:
    """One HTML page of an OpenAPI document."""
    info = document["info"]
    paths = document["paths"]
    sections = "".join(
        _operation(method, path, item)
        for path, methods in paths.items()
        for method, item in methods.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport"'
        f' content="width=device-width">'
        f"<title>{escape(info['title'])}"
        f" REST</title><style>{_STYLE}</style><h1>{escape(info['title'])}"
        f" {escape(info['version'])}</h1>"
        f"<p>{escape(info['description'])}</p><p>For programs: <a"
        f' href="/openapi.json">openapi.json</a></p>{sections}</html>'
    )


def _operation(method: str, path: str, item: Mapping[str, Any]) -> str:
    rows = "".join(_parameter(parameter) for parameter in item.get("parameters", ()))
    return (
        f"<section><h2>{method.upper()} {escape(path)}</h2><p><b>{escape(item['summary'])}.</b>"
        f" {escape(item.get('description', ''))}</p><table>{rows}</table></section>"
    )


def _parameter(parameter: Mapping[str, Any]) -> str:
    schema = parameter["schema"]
    options = [
        part.get("type") or part.get("$ref", "").rsplit("/", 1)[-1]
        for part in schema.get("anyOf", [schema])
    ]
    kind = " or ".join(name for name in options if name != "null")
    cells = escape(parameter["name"]), escape(kind), escape(parameter.get("description", ""))
    return "<tr><td><code>{}</code><td>{}<td>{}</tr>".format(*cells)
