"""Receivers that `make bench-ingest` holds ours against.

DCMTK's storescp, with and without a sync, Orthanc, and a sink in C.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import httpx

from load_tests.ingest.cells import LARGE_PDU, tls_words
from load_tests.ingest.receivers import Certificates, Receiver, start
from testing.peers import Orthanc
from testing.serving import free_ports

_SINK = Path(__file__).with_name("sink.c")
# storescp knows no sync. This one makes its file durable, but not its name: it does less than we
# promise.
_SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int fclose(FILE *stream) {
    static int (*real)(FILE *);
    if (!real) real = dlsym(RTLD_NEXT, "fclose");
    if (stream) { fflush(stream); fdatasync(fileno(stream)); }
    return real(stream);
}
"""


def start_storescp(
    folder: Path, preload: Path | None = None, tls: Certificates | None = None
) -> Receiver:
    """Forking, bit preserving, PDUs of 128 KiB, without Nagle's algorithm."""
    (port,) = free_ports(1)
    received = folder / "received"
    received.mkdir()
    command = [
        "storescp",
        "--fork",
        "--accept-all",
        "+B",
        "--max-pdu",
        "131072",
        *tls_words(tls),
        "--output-directory",
        str(received),
        str(port),
    ]
    environment = {
        **os.environ,
        "TCP_NODELAY": "1",
        **({"LD_PRELOAD": str(preload)} if preload else {}),
    }
    return Receiver(
        start(command, environment, port), port, lambda: _count(received), received, tls
    )


def start_orthanc(folder: Path) -> Receiver:
    """As it comes, but for its folders, its ports, and PDUs of 128 KiB, the most that it takes.

    Without Nagle's algorithm.
    """
    dicom_port, http_port = free_ports(2)
    storage = folder / "storage"
    configuration = {
        "StorageDirectory": str(storage),
        "IndexDirectory": str(folder / "index"),
        "DicomPort": dicom_port,
        "HttpPort": http_port,
        "RemoteAccessAllowed": False,
        "DicomAlwaysAllowStore": True,
        "Plugins": [],
        "MaximumPduLength": LARGE_PDU,
    }
    file = folder / "orthanc.json"
    file.write_text(json.dumps(configuration), encoding="utf-8")
    command = [Orthanc.program() or "Orthanc", str(file)]
    statistics = f"http://127.0.0.1:{http_port}/statistics"
    environment = {**os.environ, "TCP_NODELAY": "1"}
    process = start(command, environment, dicom_port)
    return Receiver(
        process,
        dicom_port,
        lambda: int(httpx.get(statistics, timeout=30).json()["CountInstances"]),
        storage,
    )


def start_sink(folder: Path, program: Path) -> Receiver:
    """The sink: no check, no index, but a sync of file and folder."""
    (port,) = free_ports(1)
    received = folder / "received"
    received.mkdir()
    return Receiver(
        start([str(program), str(port), str(received)], dict(os.environ), port),
        port,
        lambda: _count(received),
        received,
    )


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def sink() -> Path | None:
    """The sink's program; None without a C compiler."""
    return compiled(_SINK.read_text(encoding="ascii"), "sink", "-O2")


def sync_shim() -> Path | None:
    """A library that makes storescp's files durable; None without a C compiler."""
    return compiled(_SHIM, "shim.so", "-shared", "-fPIC", "-O2", "-ldl")


def compiled(source: str, name: str, *options: str) -> Path | None:
    """What a C compiler makes of it; None without one."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    made = Path(tempfile.mkdtemp(prefix="hilum-bench-")) / name
    made.with_suffix(".c").write_text(source, encoding="ascii")
    subprocess.run([compiler, "-o", made, made.with_suffix(".c"), *options], check=True)
    return made


def make_certificates(folder: Path) -> Certificates | None:
    """For this run; None without openssl."""
    if (program := shutil.which("openssl")) is None:
        return None
    made = Certificates(folder / "bench.pem", folder / "bench.key")
    request = [
        program,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=hilum bench",
    ]
    command = [
        *request,
        "-keyout",
        str(made.key),
        "-out",
        str(made.certificate),
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return made
