"""The command line, as a person meets it: help, exit status, and clear words about bad input."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click import Command
from PIL import Image, ImageCms
from pydicom.uid import ExplicitVRLittleEndian
from typer.main import get_command

from hilum.cli import app, parse_peer
from hilum.errors import ConfigurationError
from hilum.store.ledger import Ledger
from testing.phantoms import phantom
from testing.serving import hilum_program
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.street import Clock, Street
from tests.support.server.commands import hilum

COMMANDS = [
    "serve",
    "check",
    "send",
    "study",
    "prepare",
    "requeue",
    "destinations probe",
    "models list",
    "models build",
    "models new",
    "models show",
    "models check",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_within_80_columns(command: str, tmp_path: Path) -> None:
    done = hilum(*command.split(), "--help", folder=tmp_path)
    assert done.returncode == 0
    assert "Usage: hilum" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_no_help_holds_brackets_which_a_terminal_takes_for_styles() -> None:
    root = get_command(app)

    def texts(command: Command) -> Iterator[str]:
        yield from (
            command.help or "",
            *(str(getattr(each, "help", "")) for each in command.params),
        )
        for inner in getattr(command, "commands", {}).values():
            yield from texts(inner)

    assert [text for text in texts(root) if "[" in text] == []


def test_version(tmp_path: Path) -> None:
    """By the program itself, which imports all by itself."""
    done = subprocess.run(
        [hilum_program(), "--version"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.startswith("hilum 0.")


def test_bad_settings_are_all_named_and_end_with_2(tmp_path: Path) -> None:
    (tmp_path / "hilum.toml").write_text("[receive]\nprot = 1\n[studys]\n")
    done = hilum("serve", folder=tmp_path)
    assert done.returncode == 2
    assert "receive.prot: unknown setting; did you mean 'port'?" in done.stderr
    assert "studys: unknown setting; did you mean 'studies'?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[site]\nstate_dir = "/proc/hilum"\n', "make it writable"),
        ('[models]\nreleases = ["densenet@9"]\n', "densenet@9 has no manifest"),
        ('[models]\nbuilt = "nowhere"\n', "run `hilum models build densenet121_untrained@1`"),
        (
            '[models]\nbuilt = "nowhere"\n[triton]\nurl = "127.0.0.1:1"\n',
            "run `hilum models build densenet121_untrained@1`",
        ),
    ],
)
def test_serve_says_what_to_do_before_it_starts_anything(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "hilum.toml").write_text(f"{text}\n[receive]\nport = 59112\n[api]\nport = 59640\n")
    done = hilum("serve", folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_check_lists_problems_with_advice_and_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "hilum.toml").write_text(
        "[receive]\nport = 59113\n[destinations.pacs]\nport = 59114\n"
    )
    done = hilum("check", folder=tmp_path)
    assert done.returncode == 1
    assert "PROBLEM release densenet121_untrained@1: not built" in done.stdout
    assert "-> Run `hilum models build densenet121_untrained@1`." in done.stdout
    assert "PROBLEM destination pacs: PACS@127.0.0.1:59114" in done.stdout
    assert "ok      ledger" in done.stdout


def test_a_destination_that_is_gone_gets_nothing_again_and_is_forgotten(tmp_path: Path) -> None:
    url = migrated_sqlite(tmp_path)
    ledger = Ledger(url, clock := Clock())
    street = Street(ledger, clock, ("gone",))
    street.receive("1.2.3", 1)
    street.read()
    street.assemble()
    street.report()
    ledger.close()
    (tmp_path / "hilum.toml").write_text(
        f'[ledger]\nurl = "{url}"\n[destinations.pacs]\nport = 59114\n'
    )
    again = hilum("requeue", "deliver", "--destination", "gone", folder=tmp_path)
    assert (again.returncode, "hilum destinations forget gone" in again.stderr) == (2, True)
    wrong = hilum("destinations", "forget", "pacs", folder=tmp_path)
    assert (wrong.returncode, "pacs is in the settings" in wrong.stderr) == (2, True)
    done = hilum("destinations", "forget", "gone", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "gone: 1 delivery cancelled\n"), done.stderr
    twice = hilum("destinations", "forget", "gone", folder=tmp_path)
    assert (twice.returncode, "nothing waits for a destination 'gone'" in twice.stderr) == (2, True)
    assert (
        hilum("commitments", "forget", "CR1", folder=tmp_path).stdout
        == "CR1: 0 dead reports given up\n"
    )


def test_prepare_writes_what_the_model_sees(tmp_path: Path) -> None:
    file = phantom.save(phantom.make_instance(seed=3, rows=256, columns=256), tmp_path / "pa.dcm")
    done = hilum(
        "prepare",
        file,
        "--release",
        "densenet121_untrained@1",
        "--out",
        "x.npy",
        "--png",
        "x.png",
        "--explain",
        "e.png",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    tensor = np.load(tmp_path / "x.npy")
    assert (answer["outcome"], answer["view"], answer["shape"]) == ("prepared", "PA", [1, 224, 224])
    assert (tensor.shape, tensor.dtype) == ((1, 224, 224), np.float16)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert Image.open(tmp_path / "e.png").width > 1000, "four panels side by side"


def test_prepare_says_why_not(tmp_path: Path) -> None:
    lateral = phantom.save(
        phantom.make_instance(seed=3, view="LATERAL", rows=64, columns=64), tmp_path / "ll.dcm"
    )
    (tmp_path / "text.dcm").write_text("no DICOM")
    for file, reason in (
        (lateral, "lateral_not_supported"),
        (tmp_path / "text.dcm", "corrupt_header"),
    ):
        done = hilum(
            "prepare",
            file,
            "--release",
            "densenet121_untrained@1",
            "--out",
            "x.npy",
            folder=tmp_path,
        )
        assert done.returncode == 1
        assert json.loads(done.stdout)["reason"] == reason
    assert not (tmp_path / "x.npy").exists()
    done = hilum("prepare", lateral, "--release", "nothing@1", "--out", "x.npy", folder=tmp_path)
    assert (done.returncode, "known: densenet121_untrained@1" in done.stderr) == (2, True)


def test_prepare_takes_a_picture_file(tmp_path: Path) -> None:
    pixels = np.arange(256 * 200, dtype=np.uint16).reshape(256, 200) // 201
    Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "pa.png")
    Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "pa.jpg")
    for name in ("pa.png", "pa.jpg"):
        done = hilum(
            *("prepare", name, "--release", "densenet121_untrained@1", "--explain", "e.png"),
            folder=tmp_path,
        )
        answer = json.loads(done.stdout)
        assert (answer["outcome"], answer["view"]) == ("prepared", "UNKNOWN"), done.stderr
        assert "picture_file" in answer["flags"]
        assert answer["file"] == name
        assert Image.open(tmp_path / "e.png").width > 1000


def test_prepare_says_why_not_a_picture_file(tmp_path: Path) -> None:
    coloured = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(coloured).save(tmp_path / "colour.png")
    done = hilum("prepare", "colour.png", "--release", "densenet121_untrained@1", folder=tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stdout)["reason"] == "not_monochrome"


def test_no_library_prints_what_it_read_of_a_file(tmp_path: Path) -> None:
    file = phantom.save(phantom.make_instance(seed=3, rows=64, columns=64), tmp_path / "pa.dcm")
    syntax, quoted = ExplicitVRLittleEndian.encode(), b"DOE^JANE^1950-01-15"
    file.write_bytes(file.read_bytes().replace(syntax, quoted, 1))
    done = hilum("prepare", file, "--release", "densenet121_untrained@1", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["reason"] == "transfer_syntax_not_supported"


def test_no_library_prints_what_it_read_of_a_picture_file(tmp_path: Path) -> None:
    """libpng warns of a gray file with a profile for colour, and names the profile."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    picture = Image.fromarray(np.arange(64 * 64, dtype=np.uint16).reshape(64, 64).astype(np.uint8))
    picture.save(tmp_path / "pa.png", icc_profile=profile)
    done = hilum("prepare", "pa.png", "--release", "densenet121_untrained@1", folder=tmp_path)
    assert (json.loads(done.stdout)["outcome"], done.stderr) == ("prepared", "")


def test_study_without_a_ledger(tmp_path: Path) -> None:
    done = hilum("study", "1.2.3", folder=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_send_to_nobody_is_a_failure_that_names_the_peer(tmp_path: Path) -> None:
    file = phantom.save(phantom.make_instance(seed=3, rows=64, columns=64), tmp_path / "pa.dcm")
    done = hilum("send", file, "--to", "HILUM@127.0.0.1:59115", folder=tmp_path)
    assert done.returncode == 1
    assert "127.0.0.1" in done.stderr
    assert "Traceback" not in done.stderr


def test_models_list_says_untrained(tmp_path: Path) -> None:
    done = hilum("models", "list", folder=tmp_path)
    assert done.returncode == 0
    assert "UNTRAINED" in next(
        line for line in done.stdout.splitlines() if line.startswith("densenet121_untrained@1")
    )


def test_peer_addresses() -> None:
    assert parse_peer("HILUM@127.0.0.1:11112") == ("HILUM", "127.0.0.1", 11112)
    assert parse_peer("A@[::1]:104") == ("A", "::1", 104)
    for wrong in (
        "HILUM",
        "HILUM@host",
        "@host:1",
        "HILUM@host:0",
        "HILUM@host:x",
        "SEVENTEEN_LETTERS@host:104",
    ):
        with pytest.raises(ConfigurationError, match="AE_TITLE@HOST:PORT"):
            parse_peer(wrong)


def test_an_option_of_an_earlier_version_is_answered_with_the_new_one(tmp_path: Path) -> None:
    for words in (("--lane", "live"), ("--lane=live",)):
        done = hilum("ingest", str(tmp_path), *words, folder=tmp_path)
        assert (done.returncode, done.stderr) == (
            2,
            "hilum: `--lane` is now called `--priority`: rename it\n",
        )


def test_no_paragraph_of_a_help_ends_its_lines_itself() -> None:
    """A terminal ends them, by its width."""

    def helps(command: Command) -> Iterator[str]:
        yield command.help or ""
        for item in getattr(command, "commands", {}).values():
            yield from helps(item)

    found = list(helps(get_command(app)))
    assert len(found) > 50
    assert [text for text in found if "\n" in text.replace("\n\n", "")] == []
