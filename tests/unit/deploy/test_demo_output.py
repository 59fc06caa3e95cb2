"""What the demo prints, from a study's JSON as REST gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.demo import DemoFailed, study_uids
from deploy.demo_output import WIDTH, json_lines, shortened, shortened_tree, times, what_is_open
from testing.phantoms.phantom import make_instance, save

TIMINGS = {"started_at": 1.0, "decode_seconds": 0.004, "infer_seconds": 0.05}


def study(**changes: Any) -> dict[str, Any]:
    """A finished study."""
    findings = [
        {
            "key": f"label_{n}",
            "logit": n / 7,
            "score": n / 20,
            "decision": "undecided",
            "operating_point": None,
        }
        for n in range(14)
    ]
    delivery = {"state": "delivered", "destination": "pacs", "detail": None}
    result = {
        "release": "a@1",
        "is_trained": False,
        "is_calibrated": False,
        "is_current": True,
        "state": "reported",
        "outcome": "analysed",
        "reason": None,
        "preprocessing_version": "hp1-0",
        "findings": findings,
        "source_images": [{"view": "PA", "is_used": True, "reason": None}],
        "documents": [{"kind": "sr", "deliveries": [delivery]}],
    }
    whole = {
        "disclaimer": "For research use only. " * 6,
        "study_instance_uid": "2.25." + "1" * 39,
        "state": "closed",
        "calling_ae_title": "DX1",
        "open_readings": 0,
        "results": [result],
        "images": [
            {
                "readings": [
                    {
                        "view": "PA",
                        "reason": None,
                        "timings": {
                            "started_at": 1.0,
                            "decode_seconds": 0.004,
                            "infer_seconds": 0.05,
                        },
                    }
                ]
            }
        ],
        "timing": {
            "received_first": "2026-01-05T10:00:00.000Z",
            "received_last": "2026-01-05T10:00:01.000Z",
            "quiet_until": "2026-01-05T10:00:03.000Z",
            "analysed": "2026-01-05T10:00:01.250Z",
            "first_delivered": "2026-01-05T10:00:03.100Z",
        },
    }
    return {**whole, **changes}


def test_json_fits_the_screen_and_shows_the_highest_scores():
    lines = list(json_lines(shortened(study())))
    assert max(map(len, lines)) <= WIDTH
    text = "\n".join(lines)
    assert '{"key": "label_13", "score": 0.65, "decision": "undecided"},' in text
    assert '"and 11 more"' in text
    assert "label_10" not in text


def test_json_lines_are_json_where_nothing_is_cut():
    value = {"a": [1, {"b": [True, None]}, []], "c": {"d": {"e": "f"}}, "g": {}}
    assert json.loads("\n".join(json_lines(value))) == value


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"open_readings": 1}, "images are being read"),
        ({"state": "due"}, "images are read; the quiet period runs"),
        ({}, ""),
    ],
)
def test_what_a_study_waits_for(change: dict[str, Any], expected: str):
    assert what_is_open(study(**change)) == expected


@pytest.mark.parametrize(
    ("state", "delivery", "expected"),
    [("leased", "delivered", "written"), ("reported", "due", "on its way")],
)
def test_what_a_result_waits_for(state: str, delivery: str, expected: str):
    changed = study()
    changed["results"][0]["state"] = state
    changed["results"][0]["documents"][0]["deliveries"][0]["state"] = delivery
    assert expected in what_is_open(changed)


def test_a_superseded_result_is_not_waited_for():
    changed = study()
    changed["results"].append({**changed["results"][0], "is_current": False, "state": "due"})
    assert what_is_open(changed) == ""


def test_times_count_from_the_last_image():
    lines = list(times(study()))
    assert lines[0] == "   -1.000 s  first image received"
    assert "   +2.000 s  quiet period over" in lines
    assert "   +2.100 s  SR accepted by the destination" in lines
    assert lines[-1].split() == ["PA:", "decode", "4", "ms,", "infer", "50", "ms"]


def test_the_tree_keeps_two_groups_and_all_that_follows():
    group = [
        "│  ├─ Measurement Group",
        "│  │  ├─ Tracking Identifier: x",
        "│  │  │    a long value",
        "│  │  └─ Score: 0.5",
    ]
    tree = [
        "Report",
        "├─ Imaging Measurements",
        *group * 5,
        "└─ Qualitative Evaluations",
        "   └─ Comment: end",
    ]
    found = list(shortened_tree("\n".join(tree)))
    assert found == [
        "Report",
        "├─ Imaging Measurements",
        *group * 2,
        "│  ┊  and 3 more measurement groups",
        *tree[-2:],
    ]


def test_a_tree_with_few_groups_is_shown_whole():
    tree = (
        "Report\n├─ Imaging Measurements\n│  └─ Measurement Group\n│     └─ Score: 0.5\n└─"
        " Qualitative Evaluations"
    )
    assert "\n".join(shortened_tree(tree)) == tree


def test_study_uids_of_a_folder_with_other_files(tmp_path: Path):
    first, second = make_instance(1, rows=32, columns=32), make_instance(2, rows=32, columns=32)
    save(first, tmp_path / "a.dcm")
    (tmp_path / "deeper").mkdir()
    save(second, tmp_path / "deeper/b.dcm")
    (tmp_path / "notes.txt").write_text("no DICOM")
    assert study_uids([tmp_path]) == [first.StudyInstanceUID, second.StudyInstanceUID]


def test_nothing_to_send_says_what_to_do(tmp_path: Path):
    with pytest.raises(DemoFailed, match="make demo STUDY=path"):
        study_uids([tmp_path])
    with pytest.raises(DemoFailed, match="missing"):
        study_uids([tmp_path / "missing"])
