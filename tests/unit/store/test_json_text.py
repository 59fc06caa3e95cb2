"""JSON of the ledger says what the standard library's says, by each writer."""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.domain import Code, Decision, Finding
from hilum.store.database.json_columns import Finite, decoded, encoded
from hilum.store.schema import codec
from tests.support.ledger.ledger_steps import result_for

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)
_FINDING = Finding(
    "effusion", "Pleural effusion", Code("60046008", "SCT", "Pleural effusion"), 0.1 + 0.2, 1e-5, None, 0.5, Decision.UNDECIDED, ("1.2",)
)  # fmt: skip


@given(_VALUES)
def test_what_is_written_is_read_by_both(value: Any) -> None:
    for made in (encoded(value), encoded(Finite({"value": value})), json.dumps(value)):
        assert decoded(made) == decoded(made.encode()) == json.loads(made)
    assert decoded(encoded(value)) == value
    assert decoded(json.dumps(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_each_bit(value: float) -> None:
    assert all(
        struct.pack("d", found) == struct.pack("d", value)
        for found in (decoded(encoded(value)), decoded(json.dumps(value)))
    )


@pytest.mark.parametrize(
    "value",
    [
        [math.nan, 1.5],
        {"a": math.inf, "b": None},
        [-math.inf],
        None,
        2**70,
        {1: "a"},
        "\ud800",
        [None, "null"],
    ],
    ids=str,
)
def test_what_orjson_does_not_write_as_the_standard_library_does_is_left_to_it(
    value: object,
) -> None:
    assert encoded(value) == json.dumps(value)


@pytest.mark.parametrize("text", ["[NaN, Infinity, -Infinity]", '"\\ud800"'])
def test_what_only_the_standard_library_reads_is_read(text: str) -> None:
    assert repr(decoded(text)) == repr(json.loads(text))


def test_a_dataclass_is_the_object_of_its_fields() -> None:
    members: Mapping[str, float] = MappingProxyType({"a": 1 / 3})
    finding = dataclasses.replace(_FINDING, member_scores=members)
    expected = {
        **dataclasses.asdict(_FINDING),
        "member_scores": dict(members),
        "source_sop_instance_uids": ["1.2"],
    }
    assert decoded(encoded(finding)) == decoded(encoded([finding, 2**70]))[0] == expected


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError):
        encoded({"a": object()})


@pytest.mark.parametrize(
    "name", ["logit", "score", "probability", "operating_point", "member_scores"]
)
def test_a_result_with_a_number_that_is_none_is_not_called_finite(name: str) -> None:
    wrong = dataclasses.replace(
        _FINDING, **{name: {"a": math.nan} if name == "member_scores" else math.nan}
    )
    content = [
        codec.result_values(dataclasses.replace(result_for("1.2", "d", 1.0), findings=(item,)))[
            "content"
        ]
        for item in (_FINDING, wrong)
    ]
    assert [type(item) for item in content] == [Finite, dict]
    assert "NaN" in encoded(content[1])
