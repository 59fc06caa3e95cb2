"""What one host runs: `hilum serve --role`, and the locks that keep two servers of one state folder apart."""

from __future__ import annotations

import fcntl
import os

import pytest

from hilum.errors import ConfigurationError
from hilum.processes.web import _judged
from hilum.services import roles
from hilum.services.state_dir import held_roles, hold, is_held
from hilum.settings import Settings, Site, Watch
from hilum.supervisor.supervisor import Supervisor


@pytest.fixture
def settings(tmp_path, monkeypatch) -> Settings:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    return Settings(
        site=Site(state_dir=tmp_path / "state"), watch={"inbox": Watch(path=tmp_path / "inbox")}
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("all", "all"),
        ("listener", "listener"),
        ("listener,dispatcher", "listener,dispatcher"),
        ("dispatcher,listener", "listener,dispatcher"),
        (" dispatcher , listener ", "listener,dispatcher"),
        ("api,api", "api"),
        ("api,dispatcher,analyser,listener", "all"),
        ("listener,all", "all"),
    ],
)
def test_roles_are_words_with_commas_between(said, meant):
    assert roles.parse(said) == meant


@pytest.mark.parametrize(
    "said",
    ["", ",", "listener,", "listner", "listener;api", "listener api", "watcher", "health", "ALL"],
)
def test_another_word_is_refused_with_those_that_there_are(said):
    with pytest.raises(ConfigurationError) as refused:
        roles.parse(said)
    (problem,) = refused.value.problems
    assert problem.startswith("unknown role ")
    assert problem.endswith(
        "use all, listener, analyser, dispatcher or api, or several with commas between, as in"
        " listener,dispatcher"
    )


@pytest.mark.parametrize(
    ("role", "processes"),
    [
        ("all", {"listener", "watcher", "api", "dispatcher", "analyser"}),
        ("listener", {"listener", "watcher", "health"}),
        ("listener,dispatcher", {"listener", "watcher", "dispatcher", "health"}),
        ("analyser,dispatcher", {"analyser", "dispatcher", "health"}),
        ("listener,api", {"listener", "watcher", "api"}),
    ],
)
def test_a_server_runs_the_processes_of_its_roles_and_one_for_its_api_port(
    settings, role, processes
):
    plan = Supervisor(settings, role)._plan()
    assert {process for process, _ in plan} == processes
    assert len(plan) == len(processes)


@pytest.mark.parametrize(
    ("role", "judged"),
    [
        ("all", ()),
        ("api", ()),
        ("listener,api", ()),
        ("listener", ("receive",)),
        ("listener,dispatcher", ("receive", "deliver")),
        ("analyser,dispatcher", ("analyse", "deliver")),
    ],
)
def test_a_host_without_the_api_judges_its_own_roles(role, judged):
    assert _judged(role) == judged


@pytest.mark.parametrize(
    ("first", "second"),
    [("listener,dispatcher", "listener"), ("all", "dispatcher"), ("api", "all"), ("all", "all")],
)
def test_two_servers_of_a_state_folder_share_no_role(settings, first, second):
    with (
        hold(settings, first),
        pytest.raises(ConfigurationError, match="another `hilum serve` uses"),
        hold(settings, second),
    ):
        pytest.fail("both hold it")
    with hold(settings, second):
        assert is_held(settings)
    assert not is_held(settings)


def test_two_servers_of_a_state_folder_may_run_different_roles(settings):
    with hold(settings, "listener,dispatcher"), hold(settings, "analyser"):
        assert held_roles(settings) == ["listener", "analyser", "dispatcher"]
        assert is_held(settings, "analyser")
        assert is_held(settings, "listener,dispatcher")
    with hold(settings, "listener,dispatcher"):
        assert not is_held(settings, "listener,dispatcher")
    with hold(settings, "all"):
        assert not is_held(settings, "all")


def test_a_server_that_rests_is_not_at_work_and_keeps_its_roles(settings):
    with hold(settings, "api") as held:
        with held.resting():
            assert not is_held(settings)
            with pytest.raises(ConfigurationError, match="another `hilum serve`"):
                hold(settings, "api").__enter__()
        assert is_held(settings)


def test_locks_are_open_to_read_and_to_write_as_nfs_demands(settings):
    with hold(settings, "listener,api") as held:
        modes = [fcntl.fcntl(lock, fcntl.F_GETFL) & os.O_ACCMODE for lock in held.locks]
    assert modes == [os.O_RDWR, os.O_RDWR]
