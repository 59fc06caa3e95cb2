"""Headers as hospitals send them, drawn by hypothesis.

Names in every character set, values missing, empty, too long, doubled, broken.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

# (Specific Character Set, a name in it): those of the shared files, and Korean and simplified
# Chinese (PS3.5 Annexes H to K).
NAMES: Final = (
    ("", "Doe^Jane"),
    ("ISO_IR 100", "Äneas^Rüdiger"),
    ("ISO_IR 144", "Люкceмбypг"),  # noqa: RUF001 - the example of PS3.5
    ("ISO_IR 192", "Wang^XiaoDong=王^小东"),
    ("GB18030", "Wang^XiaoDong=王^小东"),
    ("ISO 2022 IR 6\\ISO 2022 IR 87", "Yamada^Tarou=山田^太郎=やまだ^たろう"),
    ("ISO 2022 IR 13\\ISO 2022 IR 87", "ﾔﾏﾀﾞ^ﾀﾛｳ=山田^太郎=やまだ^たろう"),
    ("\\ISO 2022 IR 149", "Hong^Gildong=洪^吉洞=홍^길동"),
    ("\\ISO 2022 IR 58", "Wang^XiaoDong=王^小东"),
)
ODD_NAMES: Final = (
    "",
    "^",
    "=",
    "Doe^Jane^A^B^C",
    "Doe^Jane^A^B^C^D^E",
    "A=B=C=D",
    "Doe\\Roe",
    "X" * 70,
    "Doe^Jane\x1b",
    "  ",
    "Doe\r\n",
)
SEXES: Final = ("M", "F", "O", "U", "", "male", "F\\M", "X ", "\x00")
DATES: Final = (
    "20260105",
    "2026.01.05",
    "20261345",
    "",
    "  ",
    "unknown",
    "2026",
    "99999999",
    "20260105\\20260106",
    "00000000",
)
TIMES: Final = (
    "083000",
    "08:30:00.12",
    "25",
    "24",
    "0860",
    "083060",
    "083000.1234567",
    "",
    "now",
    "08\\09",
)
LOCAL: Final = "(in the character set)"
IDENTIFIERS: Final = (
    "A1",
    "",
    "A" * 80,
    "A\\B",
    " lead",
    LOCAL,
    "0",
    "-",
    "A\x1b[1mB",
    "A\x07B",
    "A\tB",
    "a=b^c",
    "\\",
)
TEXTS: Final = (
    "Thorax pa",
    "",
    "T" * 300,
    "a\\b",
    "line\r\nline",
    "subscription\x07",
    "x" * 64,
    LOCAL,
)
NUMBERS: Final = ("1.80", "", "1,80", "abc", "1" * 40, "nan", "1e99", "1\\2", "\x00")


def maybe(values: tuple[str, ...]) -> st.SearchStrategy[str | None]:
    """None: the attribute is missing."""
    return st.none() | st.sampled_from(values)


HEADERS: Final = st.fixed_dictionaries(
    {
        "name": st.sampled_from(NAMES),
        "PatientName": st.none() | st.sampled_from(ODD_NAMES),
        "PatientID": maybe(IDENTIFIERS),
        "IssuerOfPatientID": maybe(IDENTIFIERS),
        "AccessionNumber": maybe(IDENTIFIERS),
        "StudyID": maybe(IDENTIFIERS),
        "PatientSex": maybe(SEXES),
        "PatientBirthDate": maybe(DATES),
        "StudyDate": maybe(DATES),
        "StudyTime": maybe(TIMES),
        "TimezoneOffsetFromUTC": maybe(("+0100", "-0330", "0100", "+9999", "")),
        "ReferringPhysicianName": maybe(ODD_NAMES),
        "StudyDescription": maybe(TEXTS),
        "PatientComments": maybe(TEXTS),
        "PatientAge": maybe(("062Y", "62", "", "old", "062Y\\063Y")),
        "PatientWeight": maybe(NUMBERS),
        "PatientSize": maybe(NUMBERS),
        "PregnancyStatus": maybe(("\x01\x00", "\x01", "\x00\x00\x00\x00", "")),
        "SmokingStatus": maybe(("YES", "maybe", "")),
        "PatientIdentityRemoved": maybe(("NO", "PERHAPS")),
        "OtherPatientIDsSequence": maybe(
            (
                "",
                "FEFF00E000000000",
                "FEFF00E00E00000010002000 4C4F0600 413120202020".replace(" ", ""),
            )
        ),
        "ProcedureCodeSequence": maybe(
            ("", "FEFF00E000000000", "FEFF00E00A00000008000001 53480200 4131".replace(" ", ""))
        ),
        "ReferencedStudySequence": maybe(("", "FEFF00E000000000")),
        "PatientOrientation": maybe(("L\\F", "L", "", "\\", "L\\F\\X", "left\\foot")),
        "ImagerPixelSpacing": maybe(("0.2\\0.2", "0.2", "", "a\\b", "\\", "0.2\\0.2\\0.2")),
    }
)


def localised(header: dict[str, Any]) -> dict[str, Any]:
    """With identifiers and texts that only this character set can say."""
    word = header["name"][1].split("=")[-1].split("^")[0]
    return {key: word if value == LOCAL else value for key, value in header.items()}
