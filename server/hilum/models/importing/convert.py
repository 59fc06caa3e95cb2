"""The locked process: a torch file on standard input, a safetensors file on standard output, or one line on standard error.

    python -I -m hilum.models.importing.convert < weights.pt > weights.safetensors

Before the first byte is read it gives up what it could do harm with: no new descriptor (so no file
and no socket), no new process, bounded memory, time and output, no right of root. Nothing of the
file is run either way (`inert`);
this is for the day that proves wrong.
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
from hilum.models.importing.inert import UnsafePickle
from hilum.models.importing.stored import ELEMENTS
from hilum.models.importing.torch_file import Damaged, ReadStorage, open_torch_file

REFUSED: Final = 3
"""Exit status when the reason stands on standard error."""
CPU_SECONDS: Final = 300
_LONGEST: Final = 600  # characters of a reason
_BASE_BYTES: Final = 1 << 30  # of address space, for Python itself and the names of tensors
_NOBODY: Final = 65534
_PR_SET_NO_NEW_PRIVS: Final = 38  # linux/prctl.h
_UNREADABLE: Final = (Damaged, tensors.NoTensors, pickle.UnpicklingError, zipfile.BadZipFile)
# What Python raises when a pickle's opcodes do not fit together.
_NONSENSE: Final = (
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
REASONS: Final = (UnsafePickle, MemoryError, *_UNREADABLE, *_NONSENSE)
"""All that `convert` may raise."""


def lock(file_bytes: int) -> None:
    """Give up all that reading a file and writing another does not need. There is no way back."""
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
    """Tensors may share a storage, and are written out each; not more often than a few times."""
    return 4 * file_bytes + (1 << 20)


def convert(source: BinaryIO, sink: BinaryIO, most_bytes: int) -> None:
    """Raises one of `REASONS`."""
    content, read = open_torch_file(source)
    named = tensors.find(content)
    header = {}
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
    if place > most_bytes:
        raise tensors.NoTensors(f"its tensors are {place} bytes, many times the file")
    text = json.dumps(header, separators=(",", ":")).encode()
    sink.write(len(text).to_bytes(8, "little") + text)
    _write_tensors(named, read, sink)


def _write_tensors(named: tensors.Named, read: ReadStorage, sink: BinaryIO) -> None:
    for name in sorted(named):
        for piece in tensors.row_bytes(named[name], read(named[name].storage)):
            sink.write(piece)


def main() -> int:
    """0: converted."""
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
    except _NONSENSE as error:
        return _refused(f"not a readable checkpoint: {type(error).__name__} {error}")
    except MemoryError:
        return _refused("it asks for more memory than its size explains. Nothing of it was run")
    return 0


def _refused(reason: str) -> int:
    """Names in the file are its author's: what cannot be printed is not."""
    os.write(2, ascii(reason)[1:-1][:_LONGEST].encode())
    return REFUSED


if __name__ == "__main__":
    sys.exit(main())
