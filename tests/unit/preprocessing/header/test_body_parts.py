"""Body parts as real senders write them.

Languages, character sets, lost characters, placeholders, compounds.
"""
# ruff: noqa: RUF001 - letters of Greek and Cyrillic that look like Latin ones are meant

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pydicom import Dataset, dcmread
from pydicom.sequence import Sequence

from hilum_preprocessing import NotAnalysable, Reason, check_tags, read_file, tag_flags
from hilum_preprocessing.header.body_part_words import (
    CHEST,
    OTHER,
    OTHER_ALONE,
    OTHER_UNLESS_PLACED,
)
from hilum_preprocessing.header.body_parts import SiteWords, body_part, named_in
from hilum_preprocessing.header.free_text import LOST, tokens
from testing.phantoms import phantom
from tests.support.objects.radiograph import radiograph, scene, spec

PICTURE = scene(8, 8)
SIXTEEN = "X" * 16


def as_latin_1(text: str, codec: str) -> str:
    """What pydicom makes of a code string in another character set."""
    return text.encode(codec).decode("latin_1")


CHESTS = [
    *(
        "CHEST",
        "chest",
        "CHEST PA",
        "CHEST_PA",
        "CHESTPA",
        "CHEST 2 VIEWS",
        "1CHEST",
        "CHEST?",
        "PORTABLE CHEST",
        "CXR",
        "LUNG",
    ),
    *(
        "TORAX",
        "TÓRAX",
        "Tórax",
        "2- TORAX",
        "RX TORAX PA Y LAT",
        "RXTORAX",
        "THORAX^PA",
        "Thoraxaufnahme",
        "TORACE",
        "Pecho",
    ),
    *(
        "poumon",
        "poumons",
        "Brust",
        "Brustkorb",
        "Lunge",
        "PULMÃO",
        "pulmón",
        "POLMONI",
        "peito",
        "borstkas",
        "BRÖSTKORG",
        "lungor",
    ),
    *(
        "Klatka piersiowa",
        "PŁUCA",
        "hrudník",
        "PLÍCE",
        "mellkas",
        "GÖĞÜS",
        "Akciğer",
        "грудная клетка",
        "ОГК",
        "Лёгкие",
        "Θώρακας",
    ),
    *("CXRPA", "THX", "krūškurvis", "ФЛЮОРОГРАФИЯ", "きょうぶ", "ریه"),
    *(
        "胸部",
        "胸部正面",
        "胸片",
        "胸",
        "흉부",
        "ทรวงอก",
        "الصدر",
        "חזה",
        "ＣＨＥＳＴ",
        "NGỰC",
        "C-ARM CHEST",
        "CHEST WITHOUT CONTRAST",
    ),
]
PLACED = [
    *(
        "THORAX FACE",
        "thorax sur le ventre",
        "Thorax de face et profil",
        "TORAX DE PIE",
        "TORACE IN PIEDI",
        "CHEST ARMS UP",
        "CHEST FACE DOWN",
    ),
    *("CHEST HANDHELD", "CHEST BACK"),
    *(
        "Thorax Bauchlage",
        "THORAX RYGGLEIE",
        "THORAX BUIKLIG",
        "AKCIĞER AYAKTA",
        "胸部 腹臥位",
        "ГРУДНАЯ КЛЕТКА СТОЯ",
        "thorax sur le ventre",
    ),
]
OTHERS = [
    *(
        "TIBFIB",
        "TIB FIB",
        "BABYGRAM",
        "SENOS PARANASALES",
        "OESOPHAGUS",
        "Térd",
        "LUTUT",
        "kepala",
        "头",
        "ركبة",
        "גולגולת",
        "घुटना",
    ),
    *(
        "SKULL",
        "Schädel",
        "SCHAEDEL",
        "CRÁNEO",
        "crâne",
        "czaszka",
        "ЧЕРЕП",
        "頭部",
        "头颅",
        "두개골",
        "HEAD",
        "SINUSES",
        "ORBIT",
    ),
    *(
        "HAND",
        "MANO",
        "mão",
        "左手",
        "WRIST",
        "KNEE",
        "KNEE LT",
        "RODILLA",
        "genou",
        "Knie rechts",
        "KOLANO",
        "коленный сустав",
        "膝関節",
    ),
    *(
        "FACE",
        "PIE",
        "ARM LT",
        "Bauch",
        "ABDOMEN",
        "ABD",
        "KUB",
        "PELVIS",
        "HIP",
        "FOOT",
        "EXTREMITY",
        "SPINE",
        "CSPINE",
        "LUMBARSPINE",
        "RIBS",
        "STERNUM",
        "CLAVICLE",
    ),
    *(
        "SHOULDER",
        "LOWER LIMB",
        "BREAST",
        "MAMMA",
        "PANORAMICA",
        "OPG",
        "ORTHOPANTOMOGRAM",
        "TEETH",
        "DENTAL",
    ),
    *(
        "THORACIC SPINE",
        "TSPINE",
        "T-SPINE",
        "THORACOLUMBAR",
        "BRUSTWIRBELSÄULE",
        "BWS",
        "WIRBELSÄULE",
        "Brustbein",
        "COLUMNA TORACICA",
    ),
    *("hrudní páteř", "ГРУДНОЙ ОТДЕЛ ПОЗВОНОЧНИКА", "胸椎", "胸骨", "흉추", "BRÖSTRYGG"),
    *(
        "CHEST ABDOMEN",
        "ABDOMEN/CHEST",
        "CHESTABDOMEN",
        "CHESTABDPELVIS",
        "胸腹部",
        "CHEST RIBS",
        "NOT CHEST",
        "HEMITHORAX LINKS",
    ),
]
UNKNOWN = [
    *(
        "",
        "UNKNOWN",
        "Unknown",
        "ANONYMIZED",
        "ANONYMISED",
        "ANON",
        "XXX",
        "-",
        "--",
        "N/A",
        "NA",
        "NULL",
        "NONE",
        "0",
        "1",
        "?",
        "???",
    ),
    *(
        "REMOVED",
        "OTHER",
        "UNSPECIFIED",
        "NOT SPECIFIED",
        "DEFAULT",
        "BODY",
        "HEART",
        "BORST",
        "sospechosa",
        "ORCHESTRA",
        "PE",
        "T?X",
    ),
]


@pytest.mark.parametrize("text", CHESTS)
def test_words_for_the_chest(text: str) -> None:
    assert named_in([text]) == "CHEST"


@pytest.mark.parametrize("text", PLACED)
def test_how_a_patient_is_placed_is_no_other_body_part(text: str) -> None:
    assert named_in([text]) == "CHEST"


@pytest.mark.parametrize("text", OTHERS)
def test_words_for_other_body_parts_and_for_the_chest_with_another(text: str) -> None:
    assert named_in([text]) == "OTHER"


@pytest.mark.parametrize("text", UNKNOWN)
def test_placeholders_and_unknown_words_name_nothing(text: str) -> None:
    assert named_in([text]) is None


@pytest.mark.parametrize(
    "text",
    [
        "T?RAX",
        "T??RAX",
        "T\ufffdRAX",
        "T\ufffd\ufffdRAX",
        "T¿RAX",
        "T*RAX",
        "T_RAX",
        "PULM?O",
        "G???S",
    ],
)
def test_lost_characters_stand_for_letters(text: str) -> None:
    assert named_in([text]) == ("CHEST" if text != "G???S" else None)


@pytest.mark.parametrize("text", ["SCH?DEL", "CR?NEO", "CR\ufffdNE", "WIRBELS?ULE", "ABD?MEN"])
def test_lost_characters_in_other_body_parts(text: str) -> None:
    assert named_in([text]) == "OTHER"


@pytest.mark.parametrize("codec", ["latin_1", "utf_8", "cp1252", "cp850", "mac_roman"])
def test_an_accent_in_any_character_set(codec: str) -> None:
    assert named_in([as_latin_1("TÓRAX", codec)]) == "CHEST"
    assert named_in([as_latin_1("SCHÄDEL", codec)]) == "OTHER"


def test_text_that_was_decoded_and_encoded_once_too_often() -> None:
    once = "TÓRAX".encode().decode("cp1252")
    assert once == "TÃ“RAX"
    assert named_in([once]) == "CHEST"
    assert named_in(["Tï¿½RAX"]) == "CHEST", "U+FFFD itself, in UTF-8 read as Latin-1"


@pytest.mark.parametrize(
    ("text", "codec", "named"),
    [
        *(
            ("胸部", codec, "CHEST")
            for codec in ("utf_8", "gb18030", "iso2022_jp", "shift_jis", "euc_jp", "big5")
        ),
        *(
            ("頭部", codec, "OTHER")
            for codec in ("utf_8", "gb18030", "iso2022_jp", "shift_jis", "euc_jp", "big5")
        ),
        ("흉부", "euc_kr", "CHEST"),
        *(
            ("ГРУДНАЯ КЛЕТКА", codec, "CHEST")
            for codec in ("utf_8", "cp1251", "koi8_r", "iso8859_5", "cp866")
        ),
        *(("ЧЕРЕП", codec, "OTHER") for codec in ("cp1251", "koi8_r", "iso8859_5", "cp866")),
        ("ΘΩΡΑΚΑΣ", "iso8859_7", "CHEST"),
        ("GÖĞÜS", "iso8859_9", "CHEST"),
    ],
)
def test_bytes_of_a_code_string_in_another_character_set(text: str, codec: str, named: str) -> None:
    assert named_in([as_latin_1(text, codec)]) == named


@pytest.mark.parametrize("escape", ["\x1b$)A", "\x1b$)C"])
def test_escapes_of_iso_2022_are_no_text(escape: str) -> None:
    """PS3.3 C.12.1.1.2: ISO 2022 IR 58 (GB 2312) and ISO 2022 IR 149 (KS X 1001)."""
    text, codec = ("胸部", "gb2312") if escape.endswith("A") else ("흉부", "euc_kr")
    assert named_in([escape + as_latin_1(text, codec)]) == "CHEST"


@pytest.mark.parametrize("character", ["胸", "肺", "膝", "牙"])
def test_latin_text_that_happens_to_be_a_chinese_character_names_nothing(character: str) -> None:
    text = as_latin_1(character, "gb18030")
    assert named_in([f"{text}BERSICHT"]) is None
    assert named_in([text]) is not None, "alone it is believed"


def test_no_word_means_both() -> None:
    others = tokens(" ".join((OTHER, OTHER_ALONE, OTHER_UNLESS_PLACED)))
    assert not set(tokens(CHEST)) & {*others}
    assert all(named_in([word]) == "CHEST" for word in tokens(CHEST))
    assert all(named_in([word]) == "OTHER" for word in others)
    assert LOST not in "".join((*tokens(CHEST), *others))


@pytest.mark.parametrize(
    "text",
    ["?" * 16, "A?" * 5000, "?A?B?C?D?E?F", "\x1b$B" * 5000, "Ã" * 100_000, "CHEST" * 20_000],
)
def test_hostile_text_takes_no_time(text: str) -> None:
    began = time.perf_counter()
    named_in([text])
    assert time.perf_counter() - began < 1


def item(**attributes: str) -> Sequence:
    found = Dataset()
    for keyword, value in attributes.items():
        setattr(found, keyword, value)
    return Sequence([found])


@pytest.mark.parametrize(
    ("attributes", "named", "where"),
    [
        (
            {"BodyPartExamined": "CHEST", "SeriesDescription": "HAND PA"},
            "CHEST",
            "Body Part Examined",
        ),
        (
            {"BodyPartExamined": "SKULL", "SeriesDescription": "CHEST PA"},
            "OTHER",
            "Body Part Examined",
        ),
        ({"BodyPartExamined": ["CHEST", "ABDOMEN"]}, "OTHER", "Body Part Examined"),
        (
            {"BodyPartExamined": "UNKNOWN", "SeriesDescription": "CHEST PA"},
            "CHEST",
            "Series Description",
        ),
        (
            {"AnatomicRegionSequence": item(CodeValue="51185008", CodeMeaning="?")},
            "CHEST",
            "Anatomic Region Sequence",
        ),
        (
            {"AnatomicRegionSequence": item(CodeValue="T-D1100", CodeMeaning="Skull")},
            "OTHER",
            "Anatomic Region Sequence",
        ),
        ({"AnatomicRegionSequence": Sequence([]), "ProtocolName": "OPG"}, "OTHER", "Protocol Name"),
        (
            {"AcquisitionDeviceProcessingDescription": "DENTAL PANORAMIC"},
            "OTHER",
            "Acquisition Device Processing Description",
        ),
        (
            {"SeriesDescription": "PA", "StudyDescription": "Rx mano derecha"},
            "OTHER",
            "Study Description",
        ),
        (
            {"SeriesDescription": "CHEST AND ABDOMEN", "StudyDescription": "CHEST"},
            "CHEST",
            "Study Description",
        ),
        ({"StudyDescription": "CHEST AND ABDOMEN"}, None, ""),
        ({"SeriesDescription": "THORACIC SPINE AP"}, None, ""),
        (
            {"ManufacturerModelName": "ORTHOPANTOMOGRAPH OP300"},
            "OTHER",
            "Manufacturer's Model Name",
        ),
        ({"ManufacturerModelName": "Radius XR"}, None, ""),
        (
            {"SeriesDescription": "FACE", "StudyDescription": "RX THORAX"},
            "CHEST",
            "Study Description",
        ),
        ({"SeriesDescription": "DE PIE"}, None, ""),
        ({"SeriesDescription": "C-ARM"}, None, ""),
        ({"SeriesDescription": "AP"}, None, ""),
        ({}, None, ""),
    ],
)
def test_what_says_the_body_part(
    attributes: dict[str, object], named: str | None, where: str
) -> None:
    dataset = Dataset()
    for keyword, value in attributes.items():
        setattr(dataset, keyword, value)
    assert body_part(dataset) == (named, where)


def test_an_unreadable_description_says_nothing() -> None:
    dataset = radiograph(PICTURE, BodyPartExamined="", SeriesDescription="CHEST")
    dataset.add_new("AnatomicRegionSequence", "SQ", [])
    dataset["AnatomicRegionSequence"]._value = "not a sequence"
    assert body_part(dataset) == ("CHEST", "Series Description")


@pytest.mark.parametrize(
    "words",
    [{"BodyPartExamined": text} for text in ("", "UNKNOWN", "XYZ")] + [{"BodyPartExamined": None}],
)
def test_an_unknown_body_part_is_read_and_flagged(words: dict[str, str | None]) -> None:
    dataset = radiograph(PICTURE, **words)
    assert check_tags(dataset, spec()) == "PA"
    assert tag_flags(dataset, spec(), "PA") == ("body_part_unknown",)


def test_a_body_part_that_another_attribute_names_is_not_unknown() -> None:
    dataset = radiograph(PICTURE, BodyPartExamined="", StudyDescription="Röntgen Thorax")
    assert tag_flags(dataset, spec(), "PA") == ()


def test_the_reason_names_the_attribute_and_not_its_text() -> None:
    with pytest.raises(NotAnalysable) as refused:
        check_tags(
            radiograph(PICTURE, BodyPartExamined="", StudyDescription="HAND Doe^John"), spec()
        )
    assert refused.value.reason is Reason.NOT_CHEST
    assert refused.value.detail == "Study Description names another body part"


def test_words_of_a_site_come_first() -> None:
    site = SiteWords.of(chest=["Borst", "TX 2P", "71020", "skull base"], other=["chest wall"])
    assert [
        named_in([text], site) for text in ("BORST", "tx_2p PA", "71020", "SKULL-BASE", "SKULL")
    ] == ["CHEST"] * 4 + ["OTHER"]
    assert named_in(["CHEST WALL"], site) == "OTHER"
    assert named_in(["TX"], site) is None


@pytest.mark.parametrize(
    ("raw", "charset", "named"),
    [
        ("胸部".encode("gb18030"), "GB18030", "CHEST"),
        ("胸部".encode("gb18030"), "", "CHEST"),
        ("胸部".encode(), "ISO_IR 192", "CHEST"),
        ("胸部".encode("iso2022_jp"), r"\ISO 2022 IR 87", "CHEST"),
        ("頭部".encode("iso2022_jp"), r"\ISO 2022 IR 87", "OTHER"),
        ("TÓRAX".encode("latin_1"), "", "CHEST"),
        ("TÓRAX".encode(), "ISO_IR 100", "CHEST"),
        (b"CHEST\0", "", "CHEST"),
        (b"T?RAX", "ISO_IR 192", "CHEST"),
        (b"SKULL", "NO_SUCH_SET", "OTHER"),
    ],
)
@pytest.mark.parametrize("keyword", ["BodyPartExamined", "SeriesDescription"])
def test_both_readers_of_headers_find_the_same(
    raw: bytes, charset: str, named: str, keyword: str, tmp_path: Path
) -> None:
    others = dict.fromkeys(
        (
            "BodyPartExamined",
            "AnatomicRegionSequence",
            "SeriesDescription",
            "StudyDescription",
            "ProtocolName",
        )
    )
    overrides = {**others, "SpecificCharacterSet": "Y" * 16, keyword: SIXTEEN}
    path = phantom.save(
        phantom.make_instance(1, rows=16, columns=16, overrides=overrides), tmp_path / "i.dcm"
    )
    content = path.read_bytes().replace(SIXTEEN.encode(), raw.ljust(16), 1)
    path.write_bytes(content.replace(b"Y" * 16, charset.encode().ljust(16), 1))
    assert body_part(read_file(path))[0] == body_part(dcmread(path))[0] == named
