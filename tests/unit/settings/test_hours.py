"""A bad entry of a timetable stops the settings, with the form that is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.settings import load

SOURCE = """
[sources.pacs]
kind = "c-get"
host = "127.0.0.1"
port = 104
ae_title = "PACS"
"""


def test_a_bad_entry_fails_when_the_settings_are_loaded(tmp_path: Path) -> None:
    file = tmp_path / "hilum.toml"
    file.write_text(SOURCE + 'hours = ["mo-fr 20:00-06:00"]\n')

    with pytest.raises(ConfigurationError) as caught:
        load(file)

    assert "'mo-fr 20:00-06:00' names a day 'mo'" in str(caught.value)
    assert "sources.pacs" in str(caught.value)


def test_good_entries_are_kept_as_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "hilum.toml"
    file.write_text(SOURCE + 'hours = ["Mon-Fri 20:00-06:00"]\n')

    assert load(file).sources["pacs"].hours == ("Mon-Fri 20:00-06:00",)
