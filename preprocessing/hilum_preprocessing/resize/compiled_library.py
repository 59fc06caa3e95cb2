"""A compiled library is used only if it is of this version and computes right. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def checked(
    path: Path, load: Callable[[Path], T], fault: Callable[[T], str]
) -> tuple[T, str] | tuple[None, str]:
    """Return the library and its name, or None and its name with the fault.

    `load` raises OSError or AttributeError where the file is no such library, ValueError where it
    is of another version. `fault` compares it on known data; an empty text: it computes right.
    """
    try:
        library = load(path)
        problem = fault(library)
    except (OSError, AttributeError) as error:
        problem = f"cannot be loaded ({error})"
    except ValueError as error:
        problem = f"is of {error}"
    return (None, f"{path.name} {problem}") if problem else (library, path.name)
