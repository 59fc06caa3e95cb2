"""Throw-away certificates for TLS tests, made by openssl: one authority, and what it signs."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.peers.peers import require_program


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, PEM."""

    certificate: Path
    key: Path


class Authority:
    """Signs identities in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        own = self._paths("authority")
        self._openssl(
            "req",
            "-x509",
            *self._new_key(own),
            "-out",
            str(own.certificate),
            "-subj",
            "/CN=Hilum test authority",
            "-days",
            "2",
        )
        self.file = own.certificate
        self._own = own

    def identity(self, name: str, *hosts: str, days: int = 2) -> Identity:
        """For these host names or addresses: `DNS:pacs.test`, `IP:127.0.0.1`.

        `days`: so long it holds; -1: it expired yesterday.
        """
        made, request, extension = (
            self._paths(name),
            self._folder / f"{name}.csr",
            self._folder / f"{name}.ext",
        )
        extension.write_text(f"subjectAltName={','.join(hosts) or f'DNS:{name}'}\n")
        self._openssl("req", *self._new_key(made), "-out", str(request), "-subj", f"/CN={name}")
        signing = [
            "-CA",
            str(self.file),
            "-CAkey",
            str(self._own.key),
            "-CAcreateserial",
            "-extfile",
            str(extension),
            "-days",
            str(days),
        ]
        self._openssl("x509", "-req", "-in", str(request), "-out", str(made.certificate), *signing)
        return made

    def revocations(self, *revoked: Identity, has_expired: bool = False) -> Path:
        """A new list of what the authority has revoked, these and what it had revoked before."""
        database, number, configuration = (
            self._folder / name for name in ("index.txt", "crlnumber", "ca.cnf")
        )
        if not database.exists():
            database.touch()
            number.write_text("01\n")
        own = f"certificate={self.file}\nprivate_key={self._own.key}\ndefault_md=sha256\ndatabase={database}\ncrlnumber={number}\n"
        configuration.write_text(f"[ca]\ndefault_ca=own\n[own]\n{own}")
        for identity in revoked:
            self._openssl("ca", "-config", str(configuration), "-revoke", str(identity.certificate))
        made = self._folder / "revoked.pem"
        holds = (
            ["-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200102000000Z"]
            if has_expired
            else ["-crldays", "2"]
        )
        self._openssl("ca", "-config", str(configuration), "-gencrl", "-out", str(made), *holds)
        return made

    def encrypted(self, identity: Identity) -> Path:
        """Its key, with a password."""
        made = identity.key.with_suffix(".encrypted.key")
        self._openssl(
            "pkey",
            "-in",
            str(identity.key),
            "-aes256",
            "-passout",
            "pass:secret",
            "-out",
            str(made),
        )
        return made

    def _paths(self, name: str) -> Identity:
        return Identity(self._folder / f"{name}.pem", self._folder / f"{name}.key")

    def _new_key(self, made: Identity) -> list[str]:
        return ["-newkey", "rsa:2048", "-nodes", "-keyout", str(made.key)]

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(
            [require_program("openssl", "openssl"), *arguments],
            check=True,
            capture_output=True,
            timeout=60,
        )


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority of this file of tests."""
    return Authority(tmp_path_factory.mktemp("authority"))
