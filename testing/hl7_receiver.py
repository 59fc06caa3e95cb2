"""A receiver of HL7 v2 that is not ours: python-hl7's MLLP server, as a process of its own.

`python -m testing.hl7_receiver PORT FOLDER` keeps the bytes of each message under its MSH-10, and
acknowledges it by python-hl7's own `create_ack`. Like the listener of an interface engine it reads
the header alone; python-hl7 takes 4 ms to parse a whole message.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys
from functools import partial
from pathlib import Path
from typing import Self

import hl7
from hl7.mllp import HL7StreamReader, HL7StreamWriter, start_hl7_server

from testing.peers import Program
from testing.serving import Section, free_ports


class Hl7Receiver(Program):
    """The receiver, started and stopped as a context.

    `answer`: MSA-1 of every acknowledgement. `identity`: files of certificate and key, for TLS.
    `ca_file`: whose client certificates it wants.
    """

    def __init__(
        self,
        folder: Path,
        answer: str = "AA",
        encoding: str = "utf-8",
        identity: tuple[Path, Path] | None = None,
        ca_file: Path | None = None,
    ) -> None:
        super().__init__(folder)
        (self.port,) = free_ports(1)
        self._options = ["--answer", answer, "--encoding", encoding]
        if identity is not None:
            self._options += ["--identity", *map(str, identity)]
        if ca_file is not None:
            self._options += ["--ca-file", str(ca_file)]

    @property
    def settings(self) -> Section:
        """Its table below `destinations`."""
        return {"kind": "hl7", "host": "127.0.0.1", "port": self.port}

    def held(self) -> list[str]:
        """MSH-10 of the messages that it has."""
        return sorted(path.stem for path in self.folder.glob("*.hl7"))

    def message(self, control_id: str) -> bytes:
        """The bytes of one."""
        return (self.folder / f"{control_id}.hl7").read_bytes()

    def __enter__(self) -> Self:
        """Start it."""
        command = [sys.executable, "-m", "testing.hl7_receiver", str(self.port), str(self.folder)]
        self._start([*command, *self._options], self.port)
        return self


async def _serve(options: argparse.Namespace) -> None:
    context = None
    if options.identity:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*options.identity)
        if options.ca_file:
            context.load_verify_locations(options.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    server = await start_hl7_server(
        partial(_take, options),
        "127.0.0.1",
        options.port,
        encoding=options.encoding,
        limit=1 << 20,
        ssl=context,
    )
    async with server:
        await server.serve_forever()


async def _take(
    options: argparse.Namespace, reader: HL7StreamReader, writer: HL7StreamWriter
) -> None:
    """Keep and acknowledge the messages of one connection."""
    try:
        while True:
            block = await reader.readblock()
            header = hl7.parse(block.partition(b"\r")[0].decode(options.encoding))
            (options.folder / f"{header.segment('MSH')[10]}.hl7").write_bytes(block)
            writer.writemessage(header.create_ack(options.answer))
            await writer.drain()
    except (asyncio.IncompleteReadError, hl7.HL7Exception, ConnectionError):
        pass
    finally:
        writer.close()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="testing.hl7_receiver", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--answer", default="AA")
    parser.add_argument("--encoding", default="utf-8")
    parser.add_argument("--identity", nargs=2, type=Path)
    parser.add_argument("--ca-file", type=Path)
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
