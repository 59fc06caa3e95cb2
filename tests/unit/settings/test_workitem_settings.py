"""Sections of worklist managers: faults are named with their remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hilum.errors import ConfigurationError
from hilum.settings import load, restore

CODE = '{ value = "CXR", scheme = "99SITE", meaning = "Chest" }'
SECTION = f"""
[destinations.pacs]
[destinations.files]
kind = "folder"
path = "/out"
documents = ["json"]

[workitems.ris]
url = "https://ris.example.org/rs"
workitem_codes = [{CODE}]
station_name_code = {CODE}
destination = "pacs"
"""


def settings_of(folder: Path, text: str) -> Any:
    file = folder / "hilum.toml"
    file.write_text(text)
    return load(file)


def test_a_section_reaches_a_child_process(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, SECTION)
    assert settings.workitems["ris"].workitem_codes[0].value == "CXR"
    assert restore(settings.dump()) == settings


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('destination = "pacs"', 'destination = "pasc"', "ris: no destination 'pasc'"),
        ('destination = "pacs"', 'destination = "files"', "files takes no DICOM objects"),
        ("[workitems.ris]", '[workitems."r s"]', "a name may hold letters"),
        (f"workitem_codes = [{CODE}]", "workitem_codes = []", "workitem_codes"),
        (f"workitem_codes = [{CODE}]", "", "workitem_codes"),
        ('value = "CXR"', f'value = "{"C" * 17}"', "value"),
        ('value = "CXR"', 'value = "C\\\\X"', "value"),
        ('value = "CXR"', 'valeu = "CXR"', "valeu"),
        ("https://ris.example.org/rs", "https://u:p@ris.example.org", "url"),
        ("https://ris.example.org/rs", "ris.example.org", "url"),
        ('destination = "pacs"', 'destination = "pacs"\npoll_seconds = 0', "poll_seconds"),
        ('destination = "pacs"', 'destination = "pacs"\nuser = "u"', "password_file"),
        ('destination = "pacs"', 'destination = "pacs"\nkind = "ups"', "kind"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert before in SECTION
    with pytest.raises(ConfigurationError) as raised:
        settings_of(tmp_path, SECTION.replace(before, after))
    assert said in str(raised.value)
