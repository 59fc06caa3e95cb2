"""Values that cannot work: Helm ends, and its message says what to set."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kubernetes.rendering import example, render

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no image": ({"image": {}}, "image.repository: set it"),
    "no tag": ({"image__tag": ""}, "image.tag: set it, or image.digest"),
    "no ledger": ({"ledger": {}}, "ledger.secret.name: set it to a Secret"),
    "no settings": ({"settings": " \n"}, "settings: give your hilum.toml"),
    "sqlite": (
        {"settings": '[ledger]\nurl = "sqlite:////var/lib/hilum/ledger.sqlite"\n'},
        "SQLite is the ledger of one host",
    ),
    "a password in a ConfigMap": (
        {"settings": 'ledger.url = "postgresql+psycopg://hilum:secret@db/hilum"\n'},
        "name a Secret in ledger.secret.name",
    ),
    "a token in a ConfigMap": (
        {"settings": '[api]\ntoken = "hilum_secret"\n'},
        "give it by secretEnv",
    ),
    "a token in an inline table": (
        {"settings": 'api = { token = "hilum_secret" }\n'},
        "give it by secretEnv",
    ),
    "a password in an address": (
        {"settings": '[sources.pacs]\nurl = "https://hilum:secret@pacs.example.org/"\n'},
        "give it by secretEnv",
    ),
    "no urls": ({"triton__mode": "external"}, "triton.urls: name your Tritons"),
    "no pools": ({"triton__mode": "pools"}, "triton.pools: name a pool"),
    "pools without their mode": (
        {"triton__pools": [{"name": "l4", "replicas": 1, "profile": "onnxruntime"}]},
        "they are not used with triton.mode embedded",
    ),
    "urls without their mode": ({"triton__urls": ["gpu:8001"]}, "set it to external"),
    "half of TLS": ({"triton__tls__serverSecret": "one"}, "triton.tls: set serverSecret and"),
    "an ingress in clear": (
        {"ingress": {"enabled": True, "host": "a.example"}},
        "ingress: set host and tlsSecret",
    ),
    "an ingress that is no proxy": (
        {"ingress": {"enabled": True, "host": "a.example", "tlsSecret": "a"}},
        "api.proxies: set the addresses",
    ),
    "an ingress that no policy lets in": (
        {"ingress": {"enabled": True, "host": "a.example", "tlsSecret": "a"}},
        "network.apiFrom: name the ingress controller's namespace",
    ),
    "a scrape without a token": (
        {"monitoring__enabled": True},
        "monitoring.tokenSecret.name: set it",
    ),
    "scaling without Prometheus": (
        {"autoscaling__enabled": True},
        "autoscaling.prometheusAddress: set",
    ),
    # of values.schema.json
    "a typo": ({"listener__replica": 3}, "additional properties 'replica' not allowed"),
    "no replicas": ({"listener__replicas": 0}, "/listener/replicas"),
    "less time than Hilum needs": ({"drainSeconds": 5}, "/drainSeconds"),
    "a container without limits": (
        {"api__resources": {"requests": {"cpu": 1}, "limits": {"cpu": None}}},
        "/api/resources/limits",
    ),
    "plans without a GPU": (
        {"triton__pools": [{"name": "l4", "replicas": 1, "profile": "tensorrt"}]},
        "missing property 'gpus'",
    ),
    "a variable that is no setting": (
        {"secretEnv": {"TOKEN": {"secret": "a", "key": "b"}}},
        "'TOKEN' does not match",
    ),
    "no range of addresses": ({"network__dicomFrom": ["10.0.0.1"]}, "/network/dicomFrom"),
}


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    asked = [example("cpu", **changes) for changes, _ in REFUSED.values()]
    return dict(zip(REFUSED, [each.error for each in render(asked)], strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_helm_refuses_it_and_says_what_to_set(errors: dict[str, str], name: str) -> None:
    assert REFUSED[name][1] in errors[name], errors[name]


def test_files_of_secrets_ports_and_remarks_are_no_secrets() -> None:
    settings = """
[api]
# token = "in a remark"
[triton]
token_file = "/etc/hilum/secrets/triton/token"
[sources.pacs]
url = "https://pacs.example.org:8443/studies"
password_file = "/etc/hilum/secrets/pacs/password"
"""
    (rendering,) = render([example("cpu", settings=settings)])
    assert rendering.error == ""


def test_all_that_is_wrong_is_said_at_once() -> None:
    (rendering,) = render([{}])
    for setting in ("image.repository", "image.tag", "ledger.secret.name", "settings"):
        assert f"* {setting}: " in rendering.error
