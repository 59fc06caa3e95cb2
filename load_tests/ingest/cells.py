"""The conditions of `make bench-ingest`.

Which objects, how many associations at once, PDUs of the sender; and the sending itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from load_tests.ingest.receivers import Certificates, Receiver
from testing.phantoms.phantom import save
from testing.phantoms.pixel_codecs import draw_study

# Kind to Transfer Syntax, pixels a side of 16 bits each, and what storescu needs to be told.
KINDS: Mapping[str, tuple[str, int, tuple[str, ...]]] = {
    "dx": ("ExplicitVRLittleEndian", 2250, ()),
    "jls": ("JPEGLSLossless", 2250, ("--propose-jls-lossless",)),
    "small": ("ExplicitVRLittleEndian", 512, ()),
}
_DRAWN = 16  # files, sent again and again under new UIDs: more would only be read from the disk
# Studies of two images under new UIDs.
_FRESH = ("--invent-series", "2", "--invent-study", "1")


@dataclass(frozen=True, slots=True)
class Cell:
    """One condition.

    `is_wide`: the slow receivers take part; `is_study_each`: an association for each study of two
    images.
    """

    kind: str
    associations: int
    pdu_bytes: int
    is_wide: bool = False
    is_study_each: bool = False

    def __str__(self) -> str:
        """For tables."""
        each = ", one for each study" if self.is_study_each else ""
        return f"{self.kind}, {self.associations} at once, PDU {self.pdu_bytes >> 10} KiB{each}"


_SMALL_PDU = 16 << 10
LARGE_PDU = 128 << 10
CELLS = (
    Cell("dx", 1, LARGE_PDU),
    Cell("dx", 4, LARGE_PDU, is_wide=True),
    Cell("dx", 16, LARGE_PDU, is_wide=True),
    Cell("dx", 4, _SMALL_PDU),
    Cell("dx", 16, _SMALL_PDU),
    Cell("dx", 16, LARGE_PDU, is_study_each=True),
    Cell("jls", 4, LARGE_PDU),
    Cell("jls", 16, LARGE_PDU),
    Cell("small", 1, LARGE_PDU),
    Cell("small", 4, LARGE_PDU, is_wide=True),
    Cell("small", 16, LARGE_PDU, is_wide=True),
    Cell("small", 4, _SMALL_PDU),
    Cell("small", 16, _SMALL_PDU),
)


def draw(folder: Path, kind: str) -> list[Path]:
    """Files of one kind; their pixels are the same, their pages are not."""
    folder.mkdir()
    syntax, side, _ = KINDS[kind]
    (image,) = draw_study(1, "DX", syntax, side, side, 14, 1)
    first = save(image, folder / "00.dcm")
    return [
        first,
        *(Path(shutil.copyfile(first, folder / f"{number:02}.dcm")) for number in range(1, _DRAWN)),
    ]


def lot(drawn: Sequence[Path], count: int) -> list[Path]:
    """So many to send, one after the other from what is drawn."""
    return [drawn[number % len(drawn)] for number in range(count)]


def send(files: Sequence[Path], cell: Cell, receiver: Receiver) -> None:
    """Raises CalledProcessError when a sender is not served."""
    environment = {**os.environ, "TCP_NODELAY": "1"}
    command = [
        "storescu",
        "--required",
        *tls_words(receiver.tls),
        "-aec",
        "HILUM",
        "--max-send-pdu",
        str(cell.pdu_bytes),
    ]
    command += [*_FRESH, *KINDS[cell.kind][2], "127.0.0.1", str(receiver.port)]
    if cell.is_study_each:
        lines = "\n".join(map(str, files)).encode()
        subprocess.run(
            ["xargs", "-P", str(cell.associations), "-n", "2", *command],
            input=lines,
            env=environment,
            check=True,
        )
        return
    shares = [files[share :: cell.associations] for share in range(cell.associations)]
    senders = [
        subprocess.Popen([*command, *map(str, share)], env=environment) for share in shares if share
    ]
    for sender in senders:
        if sender.wait() != 0:
            raise subprocess.CalledProcessError(sender.returncode, command)


def tls_words(tls: Certificates | None) -> list[str]:
    """Options of DCMTK's programs: the same certificate shown, and the only one trusted."""
    return (
        []
        if tls is None
        else ["+tls", str(tls.key), str(tls.certificate), "+cf", str(tls.certificate)]
    )
