"""A page is followed word by word, and a command that fails in silence ends it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from load_tests.fleet.two_hosts import commands_of
from testing.tutorial import follow


def followed(lines: str, folder: Path) -> list[str]:
    return list(follow(f"```console\n{lines}```\n", folder, dict(os.environ)))


def test_commands_are_run_and_what_they_say_is_compared(tmp_path: Path) -> None:
    assert followed("$ echo 1 2\n1 …\n$ true\n", tmp_path) == ["echo 1 2", "true"]
    with pytest.raises(AssertionError, match="the page says"):
        followed("$ echo 1\n2\n", tmp_path)


def test_a_command_that_fails_in_silence_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended with 1, in silence"):
        followed("$ false\n", tmp_path)


def test_a_refusal_that_the_page_shows_is_followed(tmp_path: Path) -> None:
    assert followed("$ echo refused; false\nrefused\n", tmp_path)


def test_a_command_outside_a_block_of_commands_is_found(tmp_path: Path) -> None:
    page = "```console db1\n$ true\n```\n```sh\n$ false\n```\n"
    assert list(follow(page, tmp_path, dict(os.environ), lambda _, line: ["bash", "-c", line])) == [
        "true"
    ]
    assert commands_of(page) == ["true", "false"]
