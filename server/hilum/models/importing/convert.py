"""The locked process, which turns a torch file into a safetensors file.

Standard input is the torch file. Standard output is the safetensors file, standard error one line
about a failure.

    python -I -m hilum.models.importing.convert < weights.pt > weights.safetensors

Before it reads a byte, the process gives up its rights: new descriptors (so files and sockets), new
processes, and root. Memory, time and output are bounded.

The unpickler runs nothing of the file either (`restricted_unpickler`). The lock holds if that is
wrong.

Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import resource
import sys
import zipfile
from typing import BinaryIO, Final

from hilum.models.importing import tensors
from hilum.models.importing.restricted_unpickler import UnsafePickle
from hilum.models.importing.storage import ELEMENTS
from hilum.models.importing.torch_file import Damaged, ReadStorage, open_torch_file

REFUSED: Final = 3
"""Exit status when the reason is on standard error."""
CPU_SECONDS: Final = 300
_LONGEST: Final = 600  # most characters of a reason
_BASE_BYTES: Final = 1 << 30  # of address space, for Python itself and the names of tensors
_NOBODY: Final = 65534
_PR_SET_NO_NEW_PRIVS: Final = 38  # linux/prctl.h
_UNREADABLE: Final = (Damaged, tensors.NoTensors, pickle.UnpicklingError, zipfile.BadZipFile)
# Errors of Python where a pickle's opcodes do not fit together.
_BROKEN_OPCODES: Final = (
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    NotImplementedError,
)
REASONS: Final = (UnsafePickle, MemoryError, *_UNREADABLE, *_BROKEN_OPCODES)
"""All exceptions that `convert` may raise."""


def lock(file_bytes: int) -> None:
    """Give up every right that reading one file and writing another does not need, for good."""
    for limit, value in (
        (resource.RLIMIT_AS, _BASE_BYTES + 2 * file_bytes),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_FSIZE, most_output(file_bytes)),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for limit in (resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):
        resource.setrlimit(limit, (0, 0))


def most_output(file_bytes: int) -> int:
    """Return the most bytes that may be written.

    Tensors may share a storage and are written one by one, so the limit is a few times the file.
    """
    return 4 * file_bytes + (1 << 20)


def convert(source: BinaryIO, sink: BinaryIO, most_bytes: int) -> None:
    """Write the tensors of a torch file as a safetensors file.

    Raises one of `REASONS`.
    """
    content, read = open_torch_file(source)
    named = tensors.find(content)
    total = sum(tensors.size(tensor) for tensor in named.values())
    if total > most_bytes:
        raise tensors.NoTensors(f"its tensors are {total} bytes, many times the file")
    text = json.dumps(_header(named), separators=(",", ":")).encode()
    sink.write(len(text).to_bytes(8, "little") + text)
    _write_tensors(named, read, sink)


def _header(named: tensors.Named) -> dict[str, dict[str, object]]:
    header: dict[str, dict[str, object]] = {}
    place = 0
    for name in sorted(named):
        tensor = named[name]
        end = place + tensors.size(tensor)
        header[name] = {
            "dtype": ELEMENTS[tensor.storage.kind][0],
            "shape": tensor.shape,
            "data_offsets": (place, end),
        }
        place = end
    return header


def _write_tensors(named: tensors.Named, read: ReadStorage, sink: BinaryIO) -> None:
    for name in sorted(named):
        for piece in tensors.row_bytes(named[name], read(named[name].storage)):
            sink.write(piece)


def main() -> int:
    """Return 0 when the file was converted, else `REFUSED`."""
    source = os.fdopen(0, "rb", closefd=False)
    sink = os.fdopen(1, "wb", closefd=False)
    size = os.fstat(0).st_size
    lock(size)
    try:
        convert(source, sink, most_output(size))
        sink.flush()
    except UnsafePickle as error:
        return _refused(
            f"{error}, which weights never need. Nothing of it was run. Do not use this file"
        )
    except _UNREADABLE as error:
        return _refused(f"not a readable checkpoint: {error}")
    except _BROKEN_OPCODES as error:
        return _refused(f"not a readable checkpoint: {type(error).__name__} {error}")
    except MemoryError:
        return _refused("it asks for more memory than its size explains. Nothing of it was run")
    return 0


def _refused(reason: str) -> int:
    """Write the reason to standard error with every unprintable character escaped.

    Names in the file are the author's.
    """
    os.write(2, ascii(reason)[1:-1][:_LONGEST].encode())
    return REFUSED


if __name__ == "__main__":
    sys.exit(main())
