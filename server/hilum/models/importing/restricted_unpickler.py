"""An unpickler that runs nothing.

It makes tensors and ordered dictionaries. Every other object becomes a placeholder that keeps its
attributes.

Standard library only: this is part of the locked process (`convert`).
"""

from __future__ import annotations

import _compat_pickle
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from hilum.models.importing.storage import ELEMENTS, Storage, StoredTensor

# Classes that checkpoints hold beside tensors and that do no harm as placeholders.
# A checkpoint needs no other name of the standard library.
_HARMLESS: Final = {
    "_codecs": {"encode"},
    "argparse": {"Namespace"},
    "builtins": {
        "bool",
        "bytearray",
        "bytes",
        "complex",
        "dict",
        "float",
        "frozenset",
        "int",
        "list",
        "object",
        "range",
        "set",
        "slice",
        "str",
        "tuple",
    },
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "copyreg": {"_reconstructor"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "enum": {"Enum", "IntEnum"},
    "functools": {"partial"},
    "pathlib": {"Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"},
    "types": {"SimpleNamespace"},
    "uuid": {"UUID"},
}


class UnsafePickle(Exception):
    """The pickle asks for an object that no weights need. Nothing of it was run."""


class Placeholder:
    """An object of any class, made in any way.

    It keeps attributes, ignores every other call and runs nothing.
    """

    origin = "?"

    def __new__(cls, *_: object, **__: object) -> Placeholder:
        """Take any arguments."""
        return object.__new__(cls)

    def __init__(self, *_: object, **__: object) -> None:
        """Take any arguments."""

    def __setstate__(self, state: object) -> None:
        """Keep the attributes, where the state is a table of them."""
        if isinstance(state, dict):
            self.__dict__.update(
                {name: value for name, value in state.items() if isinstance(name, str)}
            )

    def __setitem__(self, key: object, value: object) -> None:
        """Ignore an entry of a dictionary."""

    def append(self, item: object) -> None:
        """Ignore an item of a list."""

    def extend(self, items: object) -> None:
        """Ignore the items of a list."""

    def add(self, item: object) -> None:
        """Ignore an item of a set."""


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that knows tensors and ordered dictionaries, and never imports."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
        """Return the known class of this name, else a placeholder class.

        Raises UnsafePickle for a class of the standard library that no weights need.
        """
        module = _compat_pickle.IMPORT_MAPPING.get(
            module, module
        )  # Python 2's names: __builtin__ and others
        if known := _KNOWN.get((module, name)):
            return known
        if module in ("torch", "torch.cuda") and name in ELEMENTS:
            return name
        if _is_suspicious(module, name):
            raise UnsafePickle(f"it asks for {module}.{name}")
        return type("Shell", (Placeholder,), {"origin": f"{module}.{name}"})

    def persistent_load(self, saved: Any) -> Any:  # noqa: ANN401 - as the file says
        """Return the object of torch's reference: a storage, or a class saved with its source."""
        if saved[0] == "storage":
            _, kind, key, _, size, *view = saved
            if kind not in ELEMENTS or view not in ([], [None]):
                raise pickle.UnpicklingError(f"a storage of an unknown kind: {kind!r}")
            return Storage(str(key), kind, int(size))
        if saved[0] == "module":
            return saved[1]
        raise pickle.UnpicklingError(f"an unknown reference: {saved[0]!r}")


def _is_suspicious(module: str, name: str) -> bool:
    top = module.partition(".")[0]
    return (
        top in sys.stdlib_module_names or top in sys.builtin_module_names
    ) and name not in _HARMLESS.get(module, ())


def _tensor(
    storage: Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object
) -> StoredTensor:
    """torch._utils._rebuild_tensor and _v2, without gradients and hooks."""
    if not isinstance(storage, Storage):
        raise pickle.UnpicklingError("a tensor without a storage")
    return StoredTensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


def _parameter(data: object, *_: object) -> object:
    """torch._utils._rebuild_parameter: a tensor that was trained."""
    return data


def _size(items: object = ()) -> tuple[int, ...]:
    """torch.Size as a tuple."""
    return tuple(items)  # type: ignore[arg-type]  # from the file; what is no sequence of numbers fails here


_KNOWN: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("builtins", "set"): set,
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "Size"): _size,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
}
