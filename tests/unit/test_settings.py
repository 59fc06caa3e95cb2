"""Settings: every error at once, the nearest known key named, and all processes agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.settings import Settings, describe, load, restore


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


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "[receive]\nport = 1000\nprocesses = 2\n")
    monkeypatch.setenv("HILUM_RECEIVE__PORT", "2000")
    settings = load(file)
    assert (settings.receive.port, settings.receive.processes) == (2000, 2)


def test_the_file_is_found_by_variable_and_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("hilum.toml").write_text("[receive]\nport = 3000\n")
    assert load().receive.port == 3000
    monkeypatch.setenv("HILUM_CONFIG", str(written(tmp_path, "[receive]\nport = 4000\n")))
    assert load().receive.port == 4000


def test_every_problem_is_named_at_once_with_the_nearest_known_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HILUM_RECEIVE__PROT", "1")
    found = problems(
        tmp_path,
        '[receive]\nport = 99999\nae_title = "X"\n[studys]\nquiet_seconds = 1\n[destinations.pacs]\nhots = "a"\n[api]\nhost = "0.0.0.0"\n',
    )
    text = "\n".join(found)
    assert len(found) == 6
    assert "HILUM_RECEIVE__PROT: unknown setting; did you mean 'port'?" in text
    assert "receive.port: Input should be less than or equal to 65535 (got 99999)" in text
    assert "receive.ae_title: unknown setting; did you mean 'ae_titles'?" in text
    assert "studys: unknown setting; did you mean 'studies'?" in text
    assert "destinations.pacs.hots: unknown setting; did you mean 'host'?" in text
    assert "set a token" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[receive\n", "not valid TOML"),
        ('[destinations."a b"]\n', "letters, digits"),
        ('[destinations.x]\nkind = "folder"\n', 'needs path = "'),
        ('[destinations.x]\ndocuments = ["json"]\n', "cannot take"),
        ('[receive]\nae_titles = ["SEVENTEEN_LETTERS"]\n', "at most 16"),
        ('[analyse]\ndevice = "gpu"\n', "analyse.device"),
        ('[triton]\nurl = "a:1"\nurls = ["b:1"]\n', "triton: give url or urls, not both"),
        ('[triton]\nurls = ["a:1", "b:1", "a:1"]\n', "names an address twice"),
        ('[triton]\nurl = "http://gpu1:8001"\n', "triton.url: must be host:port, such as gpu1:8001"),
        ('[triton]\nurls = ["gpu1:8001", "gpu2"]\n', "triton.urls.1: must be host:port"),
        ('[watch.a]\npath = "state/archive"\n', "a: path must lie beside site.state_dir, not in it or around it"),
        ('[watch.a]\npath = "/"\n', "a: path must lie beside site.state_dir"),
        ('[watch.a]\npath = "/srv/in"\n[watch.b]\npath = "/srv/in/b"\n', "b: path must lie beside the path of a"),
        ('[watch.a]\npath = "/srv/in"\ncalled_ae_title = "NIGTH"\n', "NIGTH is not in receive.ae_titles"),
        ("[site]\nname = 'A\\B'\n", "site.name: must not hold a backslash"),
        ('[report]\nmanufacturer = " "\n', "report.manufacturer: must not be blank"),
        ('[report]\ndisclaimer = "a\\u0007"\n', "report.disclaimer: must not hold control characters"),
        ('[stow]\ncalled_ae_title = "NIGTH"\n', "stow: called_ae_title NIGTH is not in receive.ae_titles"),
    ],
)
def test_bad_values_say_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    assert said in "\n".join(problems(tmp_path, text))


def test_one_triton_or_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(written(tmp_path, "")).triton.addresses == ()
    assert load(written(tmp_path, '[triton]\nurl = "gpu1:8001"\n')).triton.addresses == ("gpu1:8001",)
    assert load(written(tmp_path, '[triton]\nurls = ["gpu1:8001", "[::1]:8001"]\n')).triton.addresses == ("gpu1:8001", "[::1]:8001")
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


def test_a_child_gets_the_same_settings_whatever_its_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, '[senders.ER]\nquiet_seconds = 2.5\n[destinations.pacs]\nae_title = "PACS1"\n[api]\ntoken = "t"\n')
    settings = load(file)
    text = settings.dump()
    monkeypatch.setenv("HILUM_RECEIVE__PORT", "2000")
    assert restore(text) == settings
    assert restore(text).handling_of("ER", "HILUM").quiet_seconds == 2.5
    assert restore(text).handling_of("OTHER", "HILUM").quiet_seconds == 10.0


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
