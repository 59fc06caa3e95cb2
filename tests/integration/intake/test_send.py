"""`hilum send` as a person runs it.

TLS, what the receiver says, and what is wrong when nothing can be sent.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from pydicom import Dataset
from pynetdicom import AE, evt
from pynetdicom.sop_class import DigitalXRayImageStorageForPresentation
from typer.testing import CliRunner

from hilum.cli import app
from testing.phantoms.phantom import make_instance, save
from tests.support.peers.certificates import Authority, Identity
from tests.support.peers.peers import StoreScp, free_port
from tests.support.server.listening import ListenerProcess, make_settings


@pytest.fixture(scope="module")
def sender(authority) -> Identity:
    return authority.identity("modality")


@pytest.fixture(scope="module")
def pacs(authority) -> Iterator[StoreScp]:
    """DCMTK's storescp with TLS, which wants a certificate of ours."""
    own = authority.identity("pacs", "DNS:pacs.test", "IP:127.0.0.1")
    with StoreScp(
        extra=("+tls", str(own.key), str(own.certificate), "+cf", str(authority.file))
    ) as running:
        yield running


@pytest.fixture(scope="module")
def listener(authority, tmp_path_factory) -> Iterator[ListenerProcess]:
    """Hilum's own receiver, with a port for TLS that wants a certificate of ours."""
    own = authority.identity("hilum", "IP:127.0.0.1")
    tls = {
        "tls_port": 2762,
        "tls_certificate_file": own.certificate,
        "tls_key_file": own.key,
        "tls_client_ca_file": authority.file,
    }
    with ListenerProcess(
        make_settings(tmp_path_factory.mktemp("listener") / "state", **tls)
    ) as running:
        yield running


@pytest.fixture
def image(tmp_path) -> Path:
    return save(make_instance(1, rows=64, columns=64), tmp_path / "image.dcm")


def hilum_send(*words: object) -> Result:
    return CliRunner().invoke(app, ["send", *map(str, words)])


def trusting(authority: Authority) -> list[object]:
    return ["--tls", "--ca-file", authority.file]


def showing(identity: Identity) -> list[object]:
    return ["--certificate-file", identity.certificate, "--key-file", identity.key]


@contextlib.contextmanager
def answering(status: int, comment: bytes | str = "") -> Iterator[str]:
    """A receiver that gives this answer to each image; its address."""
    answer = Dataset()
    answer.Status = status
    if comment:
        answer.ErrorComment = comment
    ae = AE("PACS")
    ae.add_supported_context(DigitalXRayImageStorageForPresentation)
    port = free_port()
    server = ae.start_server(
        ("127.0.0.1", port), block=False, evt_handlers=[(evt.EVT_C_STORE, lambda _event: answer)]
    )
    try:
        yield f"PACS@127.0.0.1:{port}"
    finally:
        server.shutdown()


def test_an_image_goes_over_mutual_tls_to_dcmtk(pacs, authority, sender, image):
    done = hilum_send(
        image, "--to", f"PACS@127.0.0.1:{pacs.port}", *trusting(authority), *showing(sender)
    )
    assert done.exit_code == 0, done.output
    assert done.stderr == f"1/1 sent     0x0000 {image}\n"
    assert done.stdout.startswith("1 sent, 0 refused, 0 failed, 0 skipped; ")


def test_an_image_goes_over_mutual_tls_to_hilum(listener, authority, sender, image):
    done = hilum_send(
        image,
        "--to",
        f"HILUM@127.0.0.1:{listener.tls_port}",
        *trusting(authority),
        *showing(sender),
    )
    assert (done.exit_code, "1/1 sent     0x0000" in done.stderr) == (0, True), done.output


def test_a_destination_of_the_settings_brings_its_tls_and_its_titles(
    listener, authority, sender, image, tmp_path
):
    settings = tmp_path / "hilum.toml"
    settings.write_text(
        f'[destinations.other]\nhost = "127.0.0.1"\nport = {listener.tls_port}\nae_title ='
        ' "HILUM"\ncalling_ae_title = "FROMHERE"\ntls = true\nca_file ='
        f' "{authority.file}"\ncertificate_file = "{sender.certificate}"\nkey_file ='
        f' "{sender.key}"\n[destinations.files]\nkind = "folder"\npath = "out"\n',
        encoding="utf-8",
    )
    assert hilum_send(image, "--destination", "other", "--config", settings).exit_code == 0
    assert (
        hilum_send(
            image, "--destination", "other", "--from", "ANOTHER", "--config", settings
        ).exit_code
        == 0
    )
    no_dicom = hilum_send(image, "--destination", "files", "--config", settings)
    assert (no_dicom.exit_code, no_dicom.stderr) == (
        2,
        "hilum: --destination files: no DICOM destination; the settings have other\n",
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "in certificate chain); correct ca_file or tls_server_name"),
        (["OTHER"], "its certificate is not accepted ("),
        (
            ["CA", "--tls-server-name", "elsewhere.test"],
            "certificate is not valid for 'elsewhere.test'",
        ),
        (["CA"], "give certificate_file and key_file, and have our certificate trusted there"),
    ],
    ids=["system's authorities", "another authority", "another name", "no certificate of ours"],
)
def test_certificates_that_do_not_fit_are_said(listener, authority, image, tmp_path, words, says):
    files = {"CA": authority.file, "OTHER": Authority(tmp_path / "others").file}
    options = [
        "--tls",
        *(
            each
            for word in words
            for each in (["--ca-file", files[word]] if word in files else [word])
        ),
    ]
    done = hilum_send(image, "--to", f"HILUM@127.0.0.1:{listener.tls_port}", *options)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"1/1 failed   {image}: ")
    assert says in done.stderr


def test_a_name_in_the_certificate_may_be_given(pacs, authority, sender, image):
    options = [*trusting(authority), *showing(sender), "--tls-server-name", "pacs.test"]
    assert hilum_send(image, "--to", f"PACS@127.0.0.1:{pacs.port}", *options).exit_code == 0


def test_a_port_that_wants_tls_is_said_without_it(listener, pacs, image):
    for port in (listener.tls_port, pacs.port):
        done = hilum_send(image, "--to", f"HILUM@127.0.0.1:{port}")
        assert done.exit_code == 1
        assert "TLS" in done.stderr
        assert "--tls" in done.stderr


def test_a_port_without_tls_is_said_with_it(listener, authority, image):
    done = hilum_send(image, "--to", f"HILUM@127.0.0.1:{listener.port}", *trusting(authority))
    assert (done.exit_code, "does this port speak TLS" in done.stderr) == (1, True)


def test_a_refusal_has_the_receivers_comment_and_no_advice_on_reports(listener, tmp_path, image):
    dataset = make_instance(2, rows=64, columns=64)
    file = save(dataset, tmp_path / "wrong.dcm")
    content = file.read_bytes()
    uid = str(dataset.SOPInstanceUID).encode()
    at = content.rindex(uid)
    file.write_bytes(
        content[:at] + uid[:-1] + (b"1" if uid[-1:] != b"1" else b"2") + content[at + len(uid) :]
    )  # not the file meta's
    done = hilum_send(file, image, "--to", f"HILUM@127.0.0.1:{listener.port}")
    refused, sent = done.stderr.splitlines()
    assert done.exit_code == 1
    assert refused.startswith(
        f'1/2 refused  0xA900 {file}: HILUM@127.0.0.1:{listener.port} answered 0xA900: "'
    )
    assert "SOP Instance UID" in refused
    assert "requeue" not in refused
    assert sent == f"2/2 sent     0x0000 {image}"
    assert done.stdout.startswith("1 sent, 1 refused, 0 failed, 0 skipped; ")


@pytest.mark.parametrize(
    ("status", "comment", "begins", "ends"),
    [
        (
            0xA700,
            "Disk full",
            "failed   0xA700",
            ': "Disk full" (it is out of resources; its disk may be full); send it again later',
        ),
        (
            0xA900,
            "",
            "refused  0xA900",
            "answered 0xA900 (the data set does not match its SOP Class there)",
        ),
        (
            0xC123,
            "No patient",
            "refused  0xC123",
            ': "No patient" (it cannot understand the data set)',
        ),
        (
            0x0122,
            "Only CR here",
            "refused  0x0122",
            ': "Only CR here" (it does not support this SOP Class)',
        ),
        (0x0124, "Not you", "refused  0x0124", ': "Not you" (our AE Title may not store there)'),
        (0x0117, "", "refused  0x0117", "(it finds the SOP Instance UID invalid)"),
        (0x0110, "Oops", "failed   0x0110", ': "Oops" (its log may say why); send it again later'),
        (
            0xB007,
            "Other class",
            "sent     0xB007",
            ': stored, with the warning 0xB007: "Other class"',
        ),
        (0x0111, "", "sent     0x0111", ": not stored again, it has this SOP Instance UID: 0x0111"),
        (
            0xC000,
            b"Gr\xf6\xdfe",
            "refused  0xC000",
            ': "Größe" (it cannot understand the data set)',
        ),
        (
            0xC000,
            "Größe".encode(),
            "refused  0xC000",
            ': "Größe" (it cannot understand the data set)',
        ),
        (
            0xC000,
            b"\x1b[31mred\x07",
            "refused  0xC000",
            ': "?[31mred?" (it cannot understand the data set)',
        ),
        (0xC000, b"  \0", "refused  0xC000", "answered 0xC000 (it cannot understand the data set)"),
    ],
)
def test_every_answer_is_said_with_its_status_and_comment(image, status, comment, begins, ends):
    with answering(status, comment) as address:
        done = hilum_send(image, "--to", address)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"1/1 {begins} {image}: ")
    assert line.endswith(ends)
    assert done.exit_code == (0 if begins.startswith("sent") else 1)


def test_a_title_that_the_receiver_does_not_have_is_said_with_its_reason(listener, image):
    done = hilum_send(image, "--to", f"WRONG@127.0.0.1:{listener.port}")
    assert done.exit_code == 1
    assert (
        "rejected the association: (1,1,7) it does not answer to the AE Title WRONG" in done.stderr
    )


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("127.0.0.1", "Connection refused"),
        ("no-such-host.invalid", "not known"),
        ("[::1]", "Connection refused"),
    ],
)
def test_a_host_that_does_not_answer_is_said(image, host, says):
    done = hilum_send(image, "--to", f"PACS@{host}:{free_port()}")
    assert done.exit_code == 1
    assert "no DICOM answer from " in done.stderr
    assert says in done.stderr
    assert "TLS" not in done.stderr


def test_a_receiver_that_is_about_to_listen_is_waited_for(image):
    late = StoreScp(port=free_port())
    starter = threading.Timer(1.0, late.start)
    starter.start()
    try:
        done = hilum_send(image, "--to", f"STORESCP@127.0.0.1:{late.port}", "--wait", 60)
    finally:
        starter.join()
        late.stop()
    assert done.exit_code == 0, done.stderr


def test_nothing_to_send_is_said(tmp_path):
    (tmp_path / "notes.txt").write_text("not an image")
    empty = tmp_path / "empty"
    empty.mkdir()
    to = ("--to", f"PACS@127.0.0.1:{free_port()}")
    nothing, notes, absent = (
        hilum_send(path, *to) for path in (empty, tmp_path, tmp_path / "absent.dcm")
    )
    assert {nothing.exit_code, notes.exit_code, absent.exit_code} == {1}
    assert nothing.stderr == f"hilum: nothing to send: no file in {empty}\n"
    assert notes.stderr.endswith(f"hilum: nothing to send: no DICOM file in {tmp_path}\n")
    assert "cannot be read: No such file or directory" in absent.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "where to? Give --to AE_TITLE@HOST:PORT, or --destination NAME of the settings"),
        (["--to", "PACS"], "--to PACS: give AE_TITLE@HOST:PORT, for example HILUM@127.0.0.1:11112"),
        (
            ["--to", "PACS@host:0"],
            "--to PACS@host:0: give AE_TITLE@HOST:PORT, for example HILUM@127.0.0.1:11112",
        ),
        (["--to", "PA\\CS@host:104"], "--to: an AE Title has at most 16 characters"),
        (
            ["--to", "PACS@host:104", "--from", "A" * 17],
            "--from: an AE Title has at most 16 characters",
        ),
        (["--to", "PACS@host:104", "--ca-file", "x.pem"], "--ca-file: goes with --tls"),
        (
            ["--to", "PACS@host:104", "--key-file", "x.pem", "--tls-server-name", "x"],
            "--key-file, --tls-server-name: goes with --tls",
        ),
        (
            ["--to", "PACS@host:104", "--tls", "--key-file", "x.pem"],
            "--tls: certificate_file and key_file belong together",
        ),
        (
            ["--to", "PACS@host:104", "--tls", "--ca-file", "absent.pem"],
            "TLS: absent.pem: No such file or directory; give files",
        ),
        (
            ["--to", "PACS@host:104", "--tls", "--ca-file", "image.dcm"],
            "TLS: image.dcm: not usable",
        ),
        (["--destination", "pacs", "--tls"], "--destination has address and TLS in the settings"),
        (
            ["--destination", "pacs", "--to", "PACS@host:104"],
            "--destination has address and TLS in the settings",
        ),
        (
            ["--destination", "pacs"],
            "--destination pacs: no DICOM destination; the settings have none",
        ),
    ],
)
def test_wrong_use_is_said_before_anything_is_sent(image, monkeypatch, words, says):
    monkeypatch.chdir(image.parent)
    Path("hilum.toml").write_text("")
    done = hilum_send(image, *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"hilum: {says}")
