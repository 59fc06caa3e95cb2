"""The meaning of a brought network's outputs.

Names come from a file, a known order, or the network itself. They are matched with concepts.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hilum.errors import ConfigurationError
from hilum.models.manifest import terminology
from hilum_preprocessing.spec.fields import nearest

_SHORT: Final = {"txrv18": "torchxrayvision18"}
_IN_METADATA: Final = ("labels", "classes", "class_names", "names", "id2label", "pathologies")


@dataclass(frozen=True, slots=True)
class Named:
    """Names of the outputs in their order, and their origin.

    An empty name stands for an output without one.
    """

    names: tuple[str, ...]
    origin: str


def named(asked: str | None, metadata: Mapping[str, str], outputs: int) -> Named | None:
    """Return the requested names, else those of the network's metadata, else None.

    Raises ConfigurationError.
    """
    if asked:
        fitting(asked, metadata, {"": outputs})
        return _asked(asked)
    return _in_metadata(metadata, outputs)


def fitting(
    asked: str | None, metadata: Mapping[str, str], outputs: Mapping[str, int]
) -> list[str]:
    """Return the names of the outputs that are as long as there are labels.

    All of them where no labels are given.

    Raises ConfigurationError: none is.
    """
    if not asked:
        named = [name for name, length in outputs.items() if _in_metadata(metadata, length)]
        return named or list(outputs)
    found = _asked(asked)
    fits = [name for name, length in outputs.items() if length == len(found.names)]
    if not fits:
        counts = f"{len(found.names)} labels, the network {_lengths(outputs)}"
        raise ConfigurationError(
            [f"{found.origin} has {counts}: one a line, in the order of the outputs"]
        )
    return fits


def _lengths(outputs: Mapping[str, int]) -> str:
    is_one = len(outputs) == 1
    return " or ".join(
        f"{length} outputs" if is_one else f"{length} outputs ({printable(name)})"
        for name, length in outputs.items()
    )


def concept_of(name: str) -> str | None:
    """Return the key of the concept with this name in any spelling.

    "Pleural Thickening", "pleural_thickening".
    """
    table = terminology.load()
    spellings = {plain(concept.text): key for key, concept in table.concepts.items()}
    spellings |= {
        plain(label): key for known in table.label_sets.values() for label, key in known.labels
    }
    return ({plain(key): key for key in table.concepts} | spellings).get(plain(name))


def private_code(name: str, index: int) -> str:
    """Return a code value of at most 16 characters: capital letters, digits and _."""
    code = re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")[:16].strip("_")
    return code if re.match(r"[A-Z]", code) else f"OUTPUT_{index}"


def plain(text: str) -> str:
    """Return the letters a to z and digits of a name in lower case, equal for all spellings."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _asked(asked: str) -> Named:
    sets = terminology.load().label_sets
    wanted = _SHORT.get(plain(asked), plain(asked))
    known = next((name for name in sets if plain(name) == wanted), None)
    if known:
        labels = tuple(label for label, _ in sets[known].labels)
        return Named(labels, f"label order {known} ({sets[known].cites})")
    path = Path(asked)
    if not path.is_file():
        raise ConfigurationError(
            [f"--labels {asked}: neither a file nor a known order{nearest(asked, sets)}"]
        )
    return _in_file(path)


def _in_file(path: Path) -> Named:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"--labels {path}: not readable as text: {error}"]) from error
    return Named(tuple(map(printable, text.splitlines())), path.name)


def _in_metadata(metadata: Mapping[str, str], outputs: int) -> Named | None:
    for key in _IN_METADATA:
        names = _parsed(metadata.get(key, ""))
        if len(names) == outputs:
            return Named(tuple(names), f"the network's own metadata, {key}")
    return None


def _parsed(text: str) -> Sequence[str]:
    """Return the names of a text in any form that exporters write.

    The forms are JSON, a Python literal, and names with commas between; a table by number, or a
    list.
    """
    value: object = text.split(",") if text else []
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
            break
        except (
            ValueError,
            SyntaxError,
            TypeError,
            RecursionError,
            MemoryError,
        ):  # the errors of both parsers for any text
            continue
    items = list(value.values()) if isinstance(value, dict) else value
    return [printable(str(item)) for item in items] if isinstance(items, list | tuple) else []


def printable(text: str) -> str:
    """Return the text on one line, without control characters.

    A name must not end its line of the manifest.
    """
    return "".join(each if each.isprintable() else " " for each in text).strip()
