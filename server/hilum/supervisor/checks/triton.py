"""Checks of Triton: that it is there or can start, that it is closed to others, and its sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hilum.analyse import credentials
from hilum.errors import ConfigurationError
from hilum.models.manifest.catalogue import load_catalogue
from hilum.services.releases.releases import triton_names
from hilum.services.same_user import ledger_files
from hilum.settings import Settings, is_loopback
from hilum.supervisor.checks.check import Check, accepts, unless_refused
from hilum.supervisor.checks.peers import authority, certificate
from hilum.triton import command, landlock, leftovers, runtime
from hilum.triton.sandbox import Sandbox
from hilum.triton.server import EmbeddedTriton

FLAWS: Final = "CVE-2025-23310, -23311, -23319, -23320, -23334"
"""Vulnerabilities of Triton up to 25.06: NVIDIA's bulletin of August 2025."""
_NAME: Final = "Triton 2.51, which nvidia-pytriton carries,"
_RUNS_CODE: Final = "loading a model there runs code"


def triton_checks(settings: Settings) -> Iterator[Check]:
    """Check the Tritons of the settings, or the embedded one."""
    yield from _remote(settings) if settings.triton.addresses else _embedded(settings)


def _remote(settings: Settings) -> Iterator[Check]:
    there = []
    for address in settings.triton.addresses:
        host, _, port = address.rpartition(":")
        advice = (
            "Nothing answers there: start that Triton, or set triton.url or triton.urls (none:"
            " embedded)."
        )
        is_there = accepts(host.strip("[]"), int(port))
        there += [address] if is_there else []
        yield Check("triton", is_there, address, advice)
    yield _access(settings)
    yield from unless_refused("triton TLS", _tls(settings))
    yield from unless_refused("triton models", _models(settings, there))


def _access(settings: Settings) -> Check:
    """Check whether Triton authenticates us, as far as our own settings show."""
    own = settings.triton
    found = ", ".join(settings.triton.addresses)
    advice = (
        "Set triton.tls and ca_file, with certificate_file and key_file or a token:"
        " docs/operate/operations.md, A Triton of yours."
    )
    if own.tls and (own.certificate_file or own.token or own.token_file):
        return Check(
            "triton access", ok=True, detail=f"{found}: encrypted, and we show a {_shown(settings)}"
        )
    if own.tls:
        return Check(
            "triton access",
            ok=False,
            detail=f"{found}: encrypted, but without a certificate or token of ours; {_RUNS_CODE}",
            advice=advice,
        )
    if all(is_loopback(address.rpartition(":")[0]) for address in own.addresses):
        detail = f"{found}: open to every account of this machine; {_RUNS_CODE}"
    else:
        detail = (
            f"{found}: images go there unencrypted, and calls need no certificate or token;"
            f" {_RUNS_CODE}"
        )
    return Check("triton access", ok=False, detail=detail, advice=advice)


def _shown(settings: Settings) -> str:
    return "certificate" if settings.triton.certificate_file else "token"


def _tls(settings: Settings) -> Iterator[Check]:
    """Check whether TLS can begin with these files, and the expiry of their certificates."""
    if not settings.triton.tls:
        return
    credentials.read(settings.triton)
    if settings.triton.certificate_file is not None:
        yield certificate("triton TLS", settings.triton.certificate_file, "triton.certificate_file")
    if settings.triton.ca_file is not None:
        yield authority("triton CA", settings.triton.ca_file, "triton.ca_file")


def _embedded(settings: Settings) -> Iterator[Check]:
    wheel = runtime.find()
    problems = runtime.preflight()
    yield from (Check("triton", ok=False, detail=problem) for problem in problems)
    if problems or wheel is None:
        return
    yield Check("triton", ok=True, detail="embedded tritonserver can start")
    server = EmbeddedTriton(
        settings.built_dir, settings.site.state_dir, (), traces_to=settings.tracing.endpoint
    )
    yield _sandbox(settings, server.sandbox(wheel, server.usual_folder))
    yield _regions(settings)
    out_of_reach = (
        "there is no HTTP port, its socket is open to this user only, and the sandbox is around it"
    )
    yield Check(
        "triton flaws",
        ok=True,
        detail=f"{_NAME} has published ones ({FLAWS}); out of reach: {out_of_reach}",
    )
    if command.is_ready(server.usual_folder):
        yield from unless_refused(
            "triton models", _models(settings, [command.url(server.usual_folder)])
        )


def _sandbox(settings: Settings, sandbox: Sandbox) -> Check:
    """Check the limits of the sandbox, and name those that this kernel does not offer."""
    version = landlock.version()
    port = sandbox.collector_port
    bounded = (
        f"connects to port {port} only"
        if landlock.limits_network(version)
        else "may connect ANYWHERE (needs Linux 6.7: Landlock)"
    )
    detail = (
        f"{bounded if port else 'no network'}; socket, shared memory and temporary files are for"
        " this user only"
    )
    name = "triton sandbox"
    if not version:
        unseen = "this kernel has no Landlock (Linux 5.13, `landlock` in lsm=)"
        detail += f"; NOT hidden from it: all that this user may read, as {unseen}"
        return Check(name, ok=True, detail=detail)
    ours = [settings.archive_dir, *ledger_files(settings.ledger_url)]
    if seen := sandbox.seen(ours):
        advice = (
            "It is among the programs that Triton has to read: move site.state_dir out of there."
        )
        detail += f"; it may read {', '.join(map(str, seen))}"
        return Check(name, ok=False, detail=detail, advice=advice)
    detail = f"{detail}; it reads programs and models, neither ledger nor archive"
    if sandbox.removable(ours):
        detail += (
            "; BUT it may remove files below /tmp, where they lie: for more than a trial move"
            " site.state_dir"
        )
    return Check(name, ok=True, detail=detail)


def _regions(settings: Settings) -> Check:
    """Check the modes of the running server's shared memory.

    Another version of Triton might set them differently.
    """
    opened = leftovers.open_to_others(leftovers.prefix(settings.site.state_dir))
    advice = "Images lie in them: restart the server; if they are open again, set triton.url."
    detail = (
        f"{len(opened)} regions are open to other accounts, such as {opened[0]}"
        if opened
        else "no region is open to other accounts"
    )
    return Check("shared memory", not opened, detail, advice)


def _models(settings: Settings, addresses: list[str]) -> Iterator[Check]:
    """Check whether each Triton has loaded our models only. Raises ConfigurationError."""
    from hilum.services.releases.check_release import served  # noqa: PLC0415 - imports grpc

    ours = triton_names(settings, load_catalogue(settings.manifests_dir, ()))
    for address, models in served(settings, addresses).items():
        if models is None:
            raise ConfigurationError(
                [
                    (
                        f"Triton at {address} does not answer by gRPC: do TLS and authentication of"
                        " both sides match?"
                    )
                ]
            )
        foreign = [name for name in models if name not in ours]
        advice = (
            "Others can load models there, and so run code: close it, or name the models in"
            " triton.other_models."
        )
        detail = f"{address}: {len(models)} loaded" + (
            f", not ours: {', '.join(foreign)}" if foreign else ", all ours"
        )
        yield Check("triton models", not foreign, detail, advice)
