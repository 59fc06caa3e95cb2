"""Names in place of the packages that a bare machine lacks, so that the GPU's code loads without them.

The way from stored values to logits reads no DICOM, decodes nothing and checks no manifest. Its
modules import pydicom, imagecodecs, Pillow and pydantic all the same, because they name their
types. Here such a package gives names and nothing else: what is made of one has no content, and its
use is an error.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

UNUSED: Final = ("pydicom", "imagecodecs", "PIL", "pydantic")
"""Packages that read objects and manifests; nothing that runs on the device uses them."""


class _Name(type):
    """A class without content: it can be a base, or named in a type, a table or an isinstance."""

    def __call__(cls, *_words: object, **_named: object) -> object:
        """Return an object without content, for the constants of a module."""
        return super().__call__()


class _Base:
    """What every name is."""

    def __call__(self, decorated: object) -> object:
        """Return it unchanged: pydantic's validators are decorators."""
        return decorated


class NamesOnly(ModuleType):
    """A module of which every name is there, and none has content."""

    def __getattr__(self, name: str) -> object:
        """Return a name that was not asked for before."""
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Name(name, (_Base,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class Names(MetaPathFinder, Loader):
    """Finds such modules for these packages."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = frozenset(packages)

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        """Answer for these packages alone."""
        del path, target
        if fullname.partition(".")[0] not in self._packages:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module of which every name is there."""
        return NamesOnly(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is to be run."""


def missing(packages: Sequence[str]) -> list[str]:
    """Those that are not installed here."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def give_names(packages: Sequence[str] = UNUSED) -> list[str]:
    """Let the absent ones among `packages` be imported; return them."""
    absent = missing(packages)
    if absent:
        sys.meta_path.append(Names(absent))
    return absent
