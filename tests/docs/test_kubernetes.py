"""The manifests for Kubernetes: valid by its schema, and what they call is there."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from catalog_migrate import config
from catalog_migrate.cli.group import cli
from catalog_migrate.streams.runtime.http_endpoint import Address, Endpoint, parse_address

MANIFESTS = Path(__file__).parents[2] / "examples" / "kubernetes"
SCHEMA = json.loads(Path(__file__).with_name("kubernetes.schema.json").read_text())
KINDS = {
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "Deployment": "io.k8s.api.apps.v1.Deployment",
    "Job": "io.k8s.api.batch.v1.Job",
}


def manifest(name: str) -> Any:
    """One manifest."""
    return yaml.safe_load((MANIFESTS / name).read_text())


def validate(document: Any) -> None:
    """jsonschema.ValidationError unless it is an object that Kubernetes takes, its fields known."""
    schema = {**SCHEMA, "$ref": f"#/$defs/{KINDS[document['kind']]}"}
    jsonschema.Draft202012Validator(schema).validate(document)


def pod(document: Any) -> Any:
    """The pod that a Job or a Deployment makes, and its container."""
    spec = document["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


@pytest.mark.parametrize("path", sorted(MANIFESTS.glob("*.yaml")), ids=lambda path: path.name)
def test_a_manifest_is_valid(path: Path) -> None:
    """Each by the schema of its kind, which refuses a field that is misspelt."""
    document = yaml.safe_load(path.read_text())
    validate(document)
    with pytest.raises(jsonschema.ValidationError):
        validate({**document, "metdata": {}})


@pytest.mark.parametrize("name", ["upgrade.yaml", "runtime.yaml"])
def test_the_command_line_is_one_of_ours(name: str) -> None:
    """Options and values parse, and the configuration that is mounted is where they look for it."""
    spec, container = pod(manifest(name))
    program, option, file = container["command"]
    assert (program, option) == ("catalog-migrate", "--config")
    (mount,) = container["volumeMounts"]
    (volume,) = spec["volumes"]
    mounted = manifest("config.yaml")
    assert volume["configMap"]["name"] == mounted["metadata"]["name"]
    assert Path(file) == Path(mount["mountPath"]) / next(iter(mounted["data"]))

    verb, *arguments = container["args"]
    with cli.make_context("catalog-migrate", [verb]) as context:
        command = cli.get_command(context, verb)
        assert isinstance(command, click.Command)
        command.make_context(verb, arguments, parent=context).close()


def test_the_configuration_is_valid(tmp_path: Path) -> None:
    """What the pods are given, read as they read it."""
    ((name, text),) = manifest("config.yaml")["data"].items()
    file = tmp_path / name
    file.write_text(text)
    settings = config.load(tmp_path, env={}, file=file).settings
    assert settings["catalog.uri"].value == "s3://bucket/catalog"
    _, runtime = pod(manifest("runtime.yaml"))
    grace = manifest("runtime.yaml")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > settings["streams.drain"].value
    assert runtime["args"][0] == "run"


def test_the_probes_ask_what_answers() -> None:
    """Paths and port are those of --http, the annotations name them too, and a probe that restarts
    waits longer than one that waits for an earlier pod."""
    document = manifest("runtime.yaml")
    _, container = pod(document)
    arguments = container["args"]
    address = parse_address(arguments[arguments.index("--http") + 1])
    (port,) = container["ports"]
    assert (address.host, port["containerPort"]) == ("0.0.0.0", address.port)
    probes = [container[name] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert [probe["httpGet"] for probe in probes] == [
        {"path": path, "port": port["name"]} for path in ("/readyz", "/readyz", "/healthz")
    ]
    annotations = document["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {
        "prometheus.io/scrape": "true", "prometheus.io/port": str(address.port),
        "prometheus.io/path": "/metrics",
    }
    with Endpoint(Address("127.0.0.1", 0), "main") as endpoint:
        for path in ("/healthz", "/readyz", annotations["prometheus.io/path"]):
            connection = HTTPConnection("127.0.0.1", endpoint.address.port, timeout=60)
            connection.request("GET", path)
            assert connection.getresponse().status in (200, 503)
            connection.close()
    wait = float(arguments[arguments.index("--wait") + 1])
    start = probes[0]
    assert start["periodSeconds"] * start["failureThreshold"] > 2 * wait


def test_the_job_is_not_tried_again_where_that_does_not_help() -> None:
    """Its codes are ours, and those that another attempt may mend are not among them."""
    (rule,) = manifest("upgrade.yaml")["spec"]["podFailurePolicy"]["rules"]
    final = set(rule["onExitCodes"]["values"])
    pages = (MANIFESTS.parents[1] / "docs" / "runbooks").glob("exit-*.md")
    assert final <= {int(page.stem.removeprefix("exit-")) for page in pages}
    assert not final & {5, 6}
