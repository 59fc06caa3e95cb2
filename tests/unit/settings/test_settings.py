"""Settings: every error at once, the nearest known key named, and all processes agree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import make_url

from hilum.errors import ConfigurationError
from hilum.settings import Settings, describe, load, restore, secrets_in
from tests.support.ledger.arrivals import handling_of


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HILUM_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "given.toml"
    file.write_text(text)
    return file


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(written(tmp_path, text))
    return caught.value.problems


def test_defaults_are_a_working_installation_on_loopback() -> None:
    settings = load()
    assert settings.api.host == "127.0.0.1"
    assert settings.triton.url == ""
    assert settings.ledger_url.startswith("sqlite:///")
    assert settings.destinations == {}


def test_the_environment_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, "[receive]\nport = 1000\nprocesses = 2\n")
    monkeypatch.setenv("HILUM_RECEIVE__PORT", "2000")
    settings = load(file)
    assert (settings.receive.port, settings.receive.processes) == (2000, 2)


def test_the_file_is_found_by_variable_and_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("hilum.toml").write_text("[receive]\nport = 3000\n")
    assert load().receive.port == 3000
    monkeypatch.setenv("HILUM_CONFIG", str(written(tmp_path, "[receive]\nport = 4000\n")))
    assert load().receive.port == 4000


def test_a_working_folder_that_the_user_may_not_enter_is_passed_over(tmp_path: Path) -> None:
    user = 65534 if os.geteuid() == 0 else None
    if user is not None:
        os.chown(tmp_path, user, user)
    look = (
        "import os; os.chmod('.', 0); from hilum.settings import find_file; print(find_file(None))"
    )
    done = subprocess.run(
        [sys.executable, "-c", look],
        cwd=tmp_path,
        user=user,
        capture_output=True,
        text=True,
        check=False,
    )
    tmp_path.chmod(0o700)
    assert (done.returncode, done.stdout == "hilum.toml\n") == (0, False), done.stderr


def test_every_problem_is_named_at_once_with_the_nearest_known_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HILUM_RECEIVE__PROT", "1")
    found = problems(
        tmp_path,
        '[receive]\nport = 99999\nae_title = "X"\n'
        '[studys]\nquiet_seconds = 1\n[destinations.pacs]\nhots = "a"\n[api]\ntls_key_file = "k"\n',
    )
    text = "\n".join(found)
    assert len(found) == 6
    assert "HILUM_RECEIVE__PROT: unknown setting; did you mean 'port'?" in text
    assert "receive.port: Input should be less than or equal to 65535 (got 99999)" in text
    assert "receive.ae_title: unknown setting; did you mean 'ae_titles'?" in text
    assert "studys: unknown setting; did you mean 'studies'?" in text
    assert "destinations.pacs.hots: unknown setting; did you mean 'host'?" in text
    assert "tls_certificate_file and tls_key_file belong together" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[receive\n", "not valid TOML"),
        ('[destinations."a b"]\n', "letters, digits"),
        ('[destinations.x]\nkind = "folder"\n', "destinations.x.path: Field required"),
        ('[destinations.x]\ndocuments = ["json"]\n', "cannot take"),
        ('[receive]\nae_titles = ["SEVENTEEN_LETTERS"]\n', "at most 16"),
        ('[analyse]\ndevice = "gpu"\n', "analyse.device"),
        ('[triton]\nurl = "a:1"\nurls = ["b:1"]\n', "triton: give url or urls, not both"),
        ('[triton]\nurls = ["a:1", "b:1", "a:1"]\n', "names an address twice"),
        ("[triton]\ntls = true\n", "triton: tls needs url or urls"),
        ('[triton]\nurl = "a:1"\nca_file = "/k"\n', "need tls = true"),
        (
            '[triton]\nurl = "a:1"\ntls = true\nkey_file = "/k"\n',
            "certificate_file and key_file belong together",
        ),
        ('[triton]\nurl = "a:1"\ntoken = "t"\n', "triton: token and token_file need tls = true"),
        (
            '[triton]\nurl = "a:1"\ntls = true\ntoken = "t"\ntoken_file = "/t"\n',
            "triton: give token or token_file, not both",
        ),
        (
            '[triton]\nurl = "a:1"\ntls = true\ntoken = "t "\n',
            "triton.token: a token must not begin or end with white space",
        ),
        (
            '[triton]\nurl = "http://gpu1:8001"\n',
            "triton.url: must be host:port, such as gpu1:8001",
        ),
        ('[triton]\nurls = ["gpu1:8001", "gpu2"]\n', "triton.urls.1: must be host:port"),
        (
            '[watch.a]\npath = "state/archive"\n',
            "a: path must lie beside site.state_dir, not in it or around it",
        ),
        ('[watch.a]\npath = "/"\n', "a: path must lie beside site.state_dir"),
        (
            '[watch.a]\npath = "/m"\n[models]\nmanifests = "/m"\n',
            "a: path must lie beside models.manifests",
        ),
        (
            '[watch.a]\npath = "/m"\n[models]\nbuilt = "/m/built"\n',
            "a: path must lie beside models.built",
        ),
        (
            '[watch.a]\npath = "/l"\n[ledger]\nurl = "sqlite:////l/ledger.sqlite"\n',
            "a: path must lie beside ledger.url",
        ),
        (
            '[watch.a]\npath = "/o/in"\n[destinations.o]\nkind = "folder"\npath = "/o"\n',
            "a: path must lie beside destinations.o.path",
        ),
        (
            (
                '[watch.a]\npath = "/k"\n[commitment.R]\nhost = "r"\nport = 1\ntls = true\nca_file'
                ' = "/k/ca"\n'
            ),
            "commitment.R.ca_file",
        ),
        (
            '[destinations.o]\nkind = "folder"\npath = "state/archive/o"\n',
            "path must not lie in the archive (state/archive): o",
        ),
        (
            "[studies]\nmaximum_wait_seconds = inf\n",
            "studies.maximum_wait_seconds: must be at most 2000000; no number says for ever",
        ),
        ("[pipeline]\npoll_seconds = 1e10\n", "pipeline.poll_seconds: must be at most 2000000"),
        ('[receive]\nae_titles = ["HÔPITAL"]\n', "letters without accents"),
        ('[receive]\nae_titles = ["A\\u007f"]\n', "letters without accents"),
        (
            '[destinations.x]\nae_title = " "\n',
            "destinations.x.ae_title: an AE Title must not be blank",
        ),
        (
            '[destinations.x]\nhost = ""\n',
            "destinations.x.host: String should have at least 1 character",
        ),
        (
            '[destinations.x]\nhost = "pacs..example"\n',
            "destinations.x.host: no host name: one part of it, between dots, is empty",
        ),
        (
            '[commitment.R]\nhost = "a b"\nport = 1\n',
            "commitment.R.host: no host name: it holds a space",
        ),
        ('[triton]\nurls = ["gpu1..example:8001"]\n', "triton.urls.0: no host name"),
        (
            '[commitment.R]\nhost = "r"\nport = 1\n[commitment."R "]\nhost = "s"\nport = 1\n',
            "must not differ in the spaces around them only: R",
        ),
        (
            '[ledger]\nurl = "mysql://u:very-secret@h/d"\n',
            "ledger.url: must be postgresql+psycopg://",
        ),
        ('[ledger]\nurl = "sqlite://"\n', "ledger.url: must be postgresql+psycopg://"),
        (
            'ledger = "postgresql+psycopg://u:very-secret@h/d"\n',
            "ledger: Input should be a valid dictionary",
        ),
        (
            '[ledger]\nurl = "postgresql+psycopg://u:p@h:very-secret/d"\n',
            "ledger.url: its host or port is none",
        ),
        (
            "[guard]\naspect_at_least = 2\naspect_at_most = 1\n",
            "guard: aspect_at_least is above aspect_at_most",
        ),
        (
            '[guard]\nrefuses_together = [["few_levels", "dark"]]\n',
            "guard.refuses_together.0.1: Input should be",
        ),
        ('[guard]\nchest_words = [" "]\n', "guard.chest_words.0: must not be blank"),
        ('[site]\nstate_dir = "a\\u0000b"\n', "site.state_dir: must not hold a null character"),
        (
            '[watch.a]\npath = "/srv/in"\n[watch.b]\npath = "/srv/in/b"\n',
            "b: path must lie beside the path of a",
        ),
        (
            '[watch.a]\npath = "/srv/in"\ncalled_ae_title = "NIGTH"\n',
            "NIGTH is not in receive.ae_titles",
        ),
        ("[site]\nname = 'A\\B'\n", "site.name: must not hold a backslash"),
        ('[report]\nmanufacturer = " "\n', "report.manufacturer: must not be blank"),
        (
            '[report]\ndisclaimer = "a\\u0007"\n',
            "report.disclaimer: must not hold control characters",
        ),
        (
            '[stow]\ncalled_ae_title = "NIGTH"\n',
            "stow: called_ae_title NIGTH is not in receive.ae_titles",
        ),
    ],
)
def test_bad_values_say_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    found = "\n".join(problems(tmp_path, text))
    assert said in found
    assert "very-secret" not in found


def test_spaces_around_an_ae_title_mean_nothing(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '[receive]\nae_titles = [" HILUM "]\n[commitment."ROUTER "]\nhost = "r"\nport = 104\n',
    )
    assert (load(file).receive.ae_titles, list(load(file).commitment)) == (("HILUM",), ["ROUTER"])


@pytest.mark.parametrize(
    "server",
    [
        "u@h/d",
        "u:p%40@h:5432/d",
        "u:a/b:c@[::1]:5432/d",
        "/d",
        "/d?host=/run/postgresql&user=u",
        "h:1/d",
        "h?dbname=d",
        "u:@10.0.0.1/d?sslmode=require",
    ],
)
def test_servers_of_a_ledger_are_those_of_sqlalchemy(tmp_path: Path, server: str) -> None:
    url = f"postgresql+psycopg://{server}"
    assert (
        make_url(
            load(written(tmp_path, f'[ledger]\nurl = "{url}"\n')).ledger_url
        ).get_backend_name()
        == "postgresql"
    )


def test_a_path_through_links_in_a_circle_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (problem,) = problems(tmp_path, f'[site]\nstate_dir = "{tmp_path}/loop/state"\n')
    assert "site.state_dir: links on its way lead in a circle" in problem


def test_a_file_that_is_not_utf_8_is_named_and_one_with_a_byte_order_mark_is_read(
    tmp_path: Path,
) -> None:
    file = tmp_path / "given.toml"
    file.write_bytes("[site]\nname = 'Hôpital'\n".encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"not UTF-8, as TOML has to be \(at line 2\)"):
        load(file)
    file.write_text("[site]\nname = 'Hôpital'\n", encoding="utf-8-sig")
    assert load(file).site.name == "Hôpital"


FILE = '[destinations.pacs]\nport = 104\n[senders.ARCHIVE]\npriority = "reanalysis"\n'


def test_variables_keep_the_case_of_names_and_mean_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "DESTINATIONS__PACS__HOST": "10.0.0.5",
        "DESTINATIONS__Back": '{"kind": "sender"}',
        "DESTINATIONS__Back__PORTS": '{"ER_1": 104}',
        "DESTINATIONS__Back__PORTS__ER_2": "105",
        "SENDERS__ARCHIVE__MAXIMUM_ASSOCIATIONS": "0",
        "SENDERS__ER_1__PEERS": '["10.0.0.1"]',
        "ROUTES__HILUM__PRIORITY": "urgent",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"HILUM_{name}", value)
    settings = load(written(tmp_path, FILE))
    assert {
        name: (item.host, item.port)
        for name, item in settings.destinations.items()
        if name != "Back"
    } == {"pacs": ("10.0.0.5", 104)}
    assert settings.destinations["Back"].ports == {"ER_1": 104, "ER_2": 105}
    archive = settings.senders["ARCHIVE"]
    assert (archive.maximum_associations, archive.priority, settings.senders["ER_1"].peers) == (
        0,
        "reanalysis",
        ("10.0.0.1",),
    )
    assert settings.routes["HILUM"].priority == "urgent"


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        (
            "HILUM_RECEIVE__AE_TITLES",
            "HILUM, ER",
            """HILUM_RECEIVE__AE_TITLES: a list is written as JSON, here perhaps '["HILUM", "ER"]'""",
        ),
        (
            "HILUM_RECEIVE",
            "{",
            (
                "HILUM_RECEIVE: names a whole table, which is written as JSON; for one setting of"
                " it: HILUM_RECEIVE__<NAME>"
            ),
        ),
        ("HILUM_LEDGER", '"very-secret"', "HILUM_LEDGER: names a whole table"),
        (
            "HILUM_LEDGER__URL",
            "postgresql+psycopg://hilum:p@ss:very-secret@db/hilum",
            "in a password @ is written as %40",
        ),
        (
            "HILUM_RECEIVE__PORT",
            "abc",
            "HILUM_RECEIVE__PORT: receive.port: Input should be a valid integer",
        ),
        ("HILUM_RECEIVE__PORT__X", "1", "HILUM_RECEIVE__PORT__X: unknown setting"),
        (
            "HILUM_DESTINATIONS__PACS__HOTS",
            "a",
            "HILUM_DESTINATIONS__PACS__HOTS: unknown setting; did you mean 'host'?",
        ),
        ("HILUM_API", '{"prot": 1}', "HILUM_API: api.prot: unknown setting; did you mean 'port'?"),
    ],
)
def test_a_wrong_variable_is_named(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as caught:
        load()
    (problem,) = caught.value.problems
    assert said in problem
    assert "very-secret" not in problem


def test_one_triton_or_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(written(tmp_path, "")).triton.addresses == ()
    assert load(written(tmp_path, '[triton]\nurl = "gpu1:8001"\n')).triton.addresses == (
        "gpu1:8001",
    )
    assert load(
        written(tmp_path, '[triton]\nurls = ["gpu1:8001", "[::1]:8001"]\n')
    ).triton.addresses == ("gpu1:8001", "[::1]:8001")
    monkeypatch.setenv("HILUM_TRITON__URLS", '["gpu3:8001"]')
    assert restore(load(written(tmp_path, "")).dump()).triton.addresses == ("gpu3:8001",)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load(tmp_path / "absent.toml")


def test_the_token_is_never_shown(tmp_path: Path) -> None:
    file = written(tmp_path, '[api]\nhost = "0.0.0.0"\ntoken = "very-secret"\n')
    assert "very-secret" not in repr(load(file))
    wrong = problems(tmp_path, "[api]\ntoken = 5\n")
    assert "5" not in "".join(wrong).replace("given.toml", "").replace(str(tmp_path), "")


@pytest.mark.parametrize(
    "token", ["very-secret\n", " very-secret", "very-secret\xa0", "very\tsecret", "very\x7fsecret"]
)
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(
    tmp_path: Path, token: str
) -> None:
    wrong = problems(tmp_path, f"[api]\ntoken = {json.dumps(token)}\n")
    assert ["must not begin or end with white space" in problem for problem in wrong] == [True]
    assert "very" not in wrong[0]


def test_what_kubernetes_says_of_a_service_called_hilum_is_no_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "HILUM_SERVICE_HOST": "10.0.0.1",
        "HILUM_SERVICE_PORT_DICOM": "104",
        "HILUM_PORT": "tcp://10.0.0.1:104",
        "HILUM_PORT_104_TCP_ADDR": "10.0.0.1",
        "HILUM_LISTENER_PORT": "tcp://10.0.0.1:104",
    }.items():
        monkeypatch.setenv(name, value)
    assert load().receive.port == 11112
    monkeypatch.setenv("HILUM_RECEIVE_PORT", "104")
    with pytest.raises(ConfigurationError, match="HILUM_RECEIVE_PORT: unknown setting"):
        load()


def test_a_child_gets_the_same_settings_whatever_its_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(
        tmp_path,
        '[senders.ER]\nquiet_seconds = 2.5\n[destinations.pacs]\nae_title = "PACS1"\n[api]\ntoken ='
        ' "t"\n',
    )
    settings = load(file)
    text = settings.dump()
    monkeypatch.setenv("HILUM_RECEIVE__PORT", "2000")
    assert restore(text) == settings
    assert handling_of(restore(text), "ER", "HILUM").quiet_seconds == 2.5
    assert handling_of(restore(text), "OTHER", "HILUM").quiet_seconds == 10.0


def test_the_largest_values_reach_the_children() -> None:
    sections: dict[str, dict[str, float]] = {}
    for place, kind, _, _ in describe():
        section, name = place.split(".", 1)
        if kind == "number" and "." not in name:
            sections.setdefault(section, {})[name] = 2e6
    settings = Settings(**accepted(sections))
    assert settings.studies.maximum_wait_seconds == settings.retention.days == 2e6
    assert restore(settings.dump()) == settings


def accepted(sections: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Those that have no limit of their own."""
    try:
        Settings(**sections)  # type: ignore[arg-type]
    except ValidationError as error:
        bad = {item["loc"][:2] for item in error.errors()}
        return {
            one: {key: value for key, value in values.items() if (one, key) not in bad}
            for one, values in sections.items()
        }
    return dict(sections)


def test_settings_of_another_version_are_refused_in_words() -> None:
    said = json.loads(load().dump())
    for section, value in (("studies", {"quiet_seconds": None}), ("gone", {})):
        with pytest.raises(
            ConfigurationError, match=rf"settings: \[{section}\] is not of this version"
        ):
            restore(json.dumps({**said, section: value}))


def test_settings_are_frozen() -> None:
    settings = load()
    with pytest.raises(Exception, match="frozen"):
        settings.receive.port = 5  # type: ignore[misc]


def test_every_setting_is_described() -> None:
    undescribed = [name for name, _, _, description in describe() if len(description) < 10]
    assert undescribed == []
    assert len({name for name, *_ in describe()}) > 50
    assert "receive.port" in {name for name, *_ in describe()}
    assert isinstance(Settings(), Settings)


def test_settings_that_need_certificates_of_senders_say_so(tmp_path: Path) -> None:
    file = tmp_path / "hilum.toml"
    file.write_text('[senders.CR1]\ncertificate_names = ["cr1.example"]')
    with pytest.raises(
        ConfigurationError, match=r"CR1: certificate_names needs receive.tls_client_ca_file"
    ):
        load(file)
    file.write_text(
        '[receive]\ntls_port = 2762\ntls_certificate_file = "c"\ntls_key_file = "k"\ntls_crl_file'
        ' = "r"'
    )
    with pytest.raises(ConfigurationError, match=r"tls_crl_file needs tls_client_ca_file"):
        load(file)


def test_secrets_are_found_in_a_settings_file_wherever_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "hilum.toml"
    file.write_text(
        '[api]\ntoken = "t"\n[ledger]\nurl ='
        ' "postgresql+psycopg://hilum:p@db/hilum"\n[[people]]\npassword = "p"\n[site]\nname = "St.'
        ' Token\'s"\n[tracing]\nendpoint = "http://127.0.0.1:4318/v1/traces"'
    )
    assert secrets_in(file) == ["api.token", "ledger.url", "people.password"]
    file.write_text('[destinations.a]\npassword_file = "/s/p"\nsecret_files = ["/s/a"]')
    assert secrets_in(file) == [], "the name of a file is no secret"
    file.write_text('[api]\ntoken = ""\n[ledger]\nurl = "postgresql+psycopg://hilum@db/hilum"')
    assert secrets_in(file) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[routes.HILUM]\nlane = "urgent"\n',
            "routes.HILUM.lane: `lane` is now called `priority`: rename it",
        ),
        (
            '[senders.CR1]\nlane = "urgent"\n',
            "senders.CR1.lane: `lane` is now called `priority`: rename it",
        ),
        (
            "[analyse]\nreads_once = false\n",
            "analyse.reads_once: `reads_once` is now called `drop_page_cache`: rename it",
        ),
        (
            "[receive]\nplain = false\n",
            "receive.plain: `plain` is now called `allow_unencrypted`: rename it",
        ),
        (
            '[receive]\nname_sync = "twice"\n',
            (
                "receive.name_sync: `name_sync` is now called `durability`: rename it, and write"
                ' "strict" for "twice"'
            ),
        ),
    ],
)
def test_a_name_of_an_earlier_version_is_answered_with_the_new_one(
    tmp_path: Path, text: str, said: str
) -> None:
    (problem,) = problems(tmp_path, text)
    assert problem.endswith(f"given.toml: {said}")


def test_a_variable_of_an_earlier_version_is_answered_with_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HILUM_WATCH__IN__LANE", "live")
    said = "HILUM_WATCH__IN__LANE: `lane` is now called `priority`: rename it"
    assert said in problems(tmp_path, f'[watch.in]\npath = "{tmp_path}"\n')


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"retention": {"row_months": 12}}, "rows leave after their pixels"),
        ({"ledger": {"direct_url": "postgresql+psycopg://a/b"}}, "direct_url needs a PostgreSQL"),
    ],
)
def test_a_setting_that_would_have_no_effect_is_refused(
    section: dict[str, dict[str, object]], problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        Settings.model_validate(section)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ('kind = "stow"\nurl = "http://a/b"\ncommitment = true', "deliver with kind dicom"),
        ('kind = "stow"\nurl = "http://a/b"\ncommitment_hours = 3', "deliver with kind dicom"),
        ('kind = "folder"\npath = "/tmp/x"\ncommitment = true', "commitment"),
        ("commitment_tries = 0", "commitment_tries"),
        ("commitment_hours = 0", "commitment_hours"),
        ('commitment_ae_title = "LONGER_THAN_SIXTEEN"', "commitment_ae_title"),
        ('commitment_host = "a..b"', "commitment_host"),
    ],
)
def test_storage_commitment_is_of_dimse_alone_and_within_bounds(
    tmp_path: Path, section: str, words: str
) -> None:
    (problem,) = problems(tmp_path, f"[destinations.pacs]\n{section}\n")
    assert words in problem
