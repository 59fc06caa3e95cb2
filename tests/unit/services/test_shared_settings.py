"""Digests of settings that must be the same on all hosts: what counts, and what is a host's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hilum.services.shared_settings import SHARED_SUBJECTS, shared_digests
from hilum.settings import Settings

PACS = {"host": "pacs", "port": 104, "tls": True}
ARCHIVE = {"kind": "dicomweb", "url": "https://archive.hospital.test/dicom-web"}


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Subjects in which two hosts with these settings differ."""
    first = shared_digests(Settings(**one))
    second = shared_digests(Settings(**other))
    return [subject for subject in SHARED_SUBJECTS if first[subject] != second[subject]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"retention": {"row_exports": "/a"}}, {"retention": {"row_exports": "/b"}}),
        ({"retention": {"row_exports": "/a"}}, {}),
        (
            {"destinations": {"pacs": {**PACS, "ca_file": "/a"}}},
            {"destinations": {"pacs": {**PACS, "ca_file": "/b"}}},
        ),
        (
            {"sources": {"pacs": {**ARCHIVE, "token_file": "/a"}}},
            {"sources": {"pacs": {**ARCHIVE, "token_file": "/b"}}},
        ),
        ({"receive": {"port": 104}}, {"api": {"port": 8641}}),
        ({"analyse": {"processes": 2}}, {"triton": {"url": "gpu1:8001"}}),
    ],
    ids=["a path", "a path and none", "a certificate", "a secret's file", "ports", "processes"],
)
def test_paths_secrets_and_a_hosts_own_settings_do_not_count(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert differing(one, other) == []


@pytest.mark.parametrize(
    ("other", "subject"),
    [
        ({"site": {"name": "B"}}, "site"),
        ({"archive": {"url": "s3://bucket/b"}}, "archive"),
        ({"receive": {"ae_titles": ["B"]}}, "receive"),
        ({"pipeline": {"maximum_attempts": 3}}, "pipeline"),
        ({"studies": {"quiet_seconds": 11}}, "studies"),
        ({"destinations": {"pacs": PACS}}, "destinations"),
        ({"senders": {"CR1": {"quiet_seconds": 11}}}, "senders"),
    ],
)
def test_what_decides_about_studies_counts(other: dict[str, Any], subject: str) -> None:
    assert differing({}, other) == [subject]


def test_the_same_settings_have_the_same_digests_in_each_process(tmp_path: Path) -> None:
    one = Settings(site={"state_dir": tmp_path}, destinations={"a": PACS, "b": PACS})
    other = Settings(site={"state_dir": "/elsewhere"}, destinations={"b": PACS, "a": PACS})
    assert shared_digests(one) == shared_digests(other)
