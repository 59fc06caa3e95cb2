"""What a log may say of an error.

Where it happened, and the messages of our own exceptions only.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from hilum.domain import ImageReason
from hilum.errors import NotAnalysed, Retry
from hilum.observability import telemetry

NAME = "Doe^Jane"


def fail_far_away(name: str) -> None:
    """In another process."""
    raise ValueError(f"no such patient\n  {name}")


def caught(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """Raised and caught, so that it has a traceback."""
    try:
        raise error from cause
    except type(error) as raised:
        return raised


def test_a_foreign_message_is_left_out_and_the_place_is_not() -> None:
    text = telemetry.traceback_without_messages(caught(ValueError(f"cannot parse {NAME!r}")))
    assert NAME not in text
    assert "in caught" in text
    assert text.endswith("\nValueError")


def test_our_own_messages_stand() -> None:
    text = telemetry.traceback_without_messages(
        caught(NotAnalysed(ImageReason.CORRUPT_HEADER, "Rows is 0"))
    )
    assert text.endswith("hilum.errors.NotAnalysed: corrupt_header: Rows is 0")
    assert telemetry.traceback_without_messages(caught(Retry("Triton is loading"))).endswith(
        "Retry: Triton is loading"
    )


def test_an_operating_system_error_says_what_it_was() -> None:
    text = telemetry.traceback_without_messages(
        caught(OSError(28, "No space left on device", f"/archive/{NAME}"))
    )
    assert text.endswith("OSError: No space left on device")
    assert NAME not in text


def test_the_whole_chain_is_there() -> None:
    text = telemetry.traceback_without_messages(
        caught(RuntimeError("outer"), caught(KeyError(NAME)))
    )
    assert text.index("KeyError") < text.index("which led to:") < text.index("RuntimeError")
    assert NAME not in text


def test_all_members_of_a_group() -> None:
    text = telemetry.traceback_without_messages(
        ExceptionGroup("two", [caught(KeyError(NAME)), caught(TypeError(NAME))])
    )
    assert "KeyError" in text
    assert "TypeError" in text
    assert NAME not in text


def test_frames_of_another_process_are_kept_without_its_message() -> None:
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
        pytest.raises(ValueError, match="patient") as raised,
    ):
        pool.submit(fail_far_away, NAME).result()
    text = telemetry.traceback_without_messages(raised.value)
    assert "in fail_far_away" in text
    assert NAME not in text


PROGRAM = """
import logging, threading, warnings
from hilum.observability import telemetry
telemetry.configure_logging("info", "console", "test")
telemetry.configure_logging("debug", "json", "test")
name = "Doe" + "^" + "Jane"
telemetry.logger("room").error("ours", exc_info=ValueError(name))
try:
    raise LookupError(name)
except LookupError:
    logging.getLogger("uvicorn.error").exception("theirs")
warnings.warn(name)
import pydicom
pydicom.dataelem.DataElement("PatientAge", "AS", name)
logging.getLogger("pydicom").warning(name)
logging.getLogger("python_multipart.multipart").warning(name)
logging.getLogger("httpx").warning(name)
logging.getLogger("uvicorn.error").warning("two\\nlines %s", "of text")
thread = threading.Thread(target=lambda: [][name])
thread.start()
thread.join()
raise SyntaxError(name)
"""


def test_no_way_to_standard_error_carries_a_message() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 1
    assert "^" not in ran.stderr + ran.stdout, ran.stderr
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [line["event"] for line in lines] == [
        "ours",
        "theirs",
        "two\nlines of text",
        "uncaught",
        "uncaught",
    ]
    assert {(line["process"], line["level"]) for line in lines} == {
        ("test", level) for level in ("error", "warning", "critical")
    }
    assert [line["library"] for line in lines if "library" in line] == ["uvicorn.error"] * 2
    assert [
        kind
        for kind in ("ValueError", "LookupError", "TypeError", "SyntaxError")
        if kind not in ran.stderr
    ] == []
