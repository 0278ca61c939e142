"""The examples for replicas: what Kubernetes and Envoy would say of them, and the numbers that must fit together."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from verifier.config import load_settings

yaml = pytest.importorskip("yaml", reason="no PyYAML: pip install 'verifier[dev]'")
DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "verifier.yaml").read_text()))
ENVOY = yaml.safe_load((DEPLOY / "envoy" / "envoy.yaml").read_text())
SERVICE = "verifier.v1.Verifier"


def of_kind(kind):
    (found,) = [document for document in KUBERNETES if document["kind"] == kind]
    return found


@pytest.fixture
def settings(tmp_path):
    """The daemon's own reading of the configuration in the example."""
    path = tmp_path / "verifier.toml"
    path.write_text(of_kind("ConfigMap")["data"]["verifier.toml"])
    return load_settings(path)


@pytest.fixture
def pod():
    return of_kind("Deployment")["spec"]["template"]["spec"]


@pytest.fixture
def container(pod):
    (only,) = pod["containers"]
    return only


def test_kubernetes_knows_every_field():
    validate = pytest.importorskip("kubernetes_validate", reason="no schemas: pip install 'verifier[dev]'")
    for document in KUBERNETES:
        validate.validate(document, "1.31", strict=True)


def test_kubernetes_would_refuse_a_field_that_it_does_not_know():
    validate = pytest.importorskip("kubernetes_validate", reason="no schemas: pip install 'verifier[dev]'")
    wrong = json.loads(json.dumps(of_kind("Deployment")))
    wrong["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["grcp"] = {"port": 1}
    with pytest.raises(validate.ValidationError):
        validate.validate(wrong, "1.31", strict=True)


def test_draining_fits_into_the_grace_period(settings, pod, container):
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    draining = settings.server.drain_s + settings.devices.drain_timeout_s
    assert before + draining < pod["terminationGracePeriodSeconds"]


def test_probes_ask_the_daemons_health_service(settings, container):
    (listener,) = settings.health.listen
    port = int(listener.rpartition(":")[2])
    assert container["readinessProbe"]["grpc"]["port"] == port
    assert container["startupProbe"]["grpc"]["port"] == port
    assert "grpc" not in container["livenessProbe"], "a daemon that serves nothing must not be killed for it"
    ports = {entry["name"]: entry["containerPort"] for entry in container["ports"]}
    assert ports["health"] == port
    assert ports["grpc"] == int(settings.server.listen[0].rpartition(":")[2])
    assert ports["metrics"] == int(settings.metrics.listen.rpartition(":")[2])


def test_the_service_names_every_pod(container):
    service, deployment = of_kind("Service")["spec"], of_kind("Deployment")["spec"]
    assert service["clusterIP"] == "None"
    labels = deployment["template"]["metadata"]["labels"]
    for selector in (service["selector"], deployment["selector"]["matchLabels"]):
        assert selector.items() <= labels.items()
    assert of_kind("PodDisruptionBudget")["spec"]["minAvailable"] == deployment["replicas"] - 1


def test_files_of_the_configuration_are_mounted(settings, container):
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    server = settings.server
    for file in (server.tls_certificate_file, server.tls_key_file, server.tls_client_ca_file):
        assert any(str(file).startswith(mount) for mount in mounts)
    assert container["args"][-1] in mounts


def bootstrap(document):
    """Envoy's own message of the file. Every extension that it names must be known, or it does not parse."""
    pytest.importorskip("envoy.config.bootstrap.v3.bootstrap_pb2", reason="no schemas: pip install 'verifier[dev]'")
    from google.protobuf import json_format

    for name in (
        "filters.http.router.v3.router",
        "filters.network.http_connection_manager.v3.http_connection_manager",
        "retry.host.previous_hosts.v3.previous_hosts",
        "transport_sockets.tls.v3.tls",
        "upstreams.http.v3.http_protocol_options",
    ):
        importlib.import_module(f"envoy.extensions.{name}_pb2")
    message = importlib.import_module("envoy.config.bootstrap.v3.bootstrap_pb2").Bootstrap()
    return json_format.ParseDict(document, message)


def test_envoy_knows_every_field():
    parsed = bootstrap(ENVOY)
    (cluster,) = parsed.static_resources.clusters
    assert cluster.health_checks[0].grpc_health_check.service_name == SERVICE
    assert cluster.outlier_detection.consecutive_gateway_failure.value == 2


@pytest.mark.parametrize(
    "path", [("clusters", 0), ("listeners", 0, "filter_chains", 0, "filters", 0, "typed_config")]
)
def test_envoy_would_refuse_a_field_that_it_does_not_know(path):
    wrong = json.loads(json.dumps(ENVOY))
    place = wrong["static_resources"]
    for step in path:
        place = place[step]
    place["no_such_field"] = 1
    from google.protobuf.json_format import ParseError

    with pytest.raises(ParseError, match="no_such_field"):
        bootstrap(wrong)


def test_envoy_retries_once_on_another_daemon_and_sets_no_deadline():
    (listener,) = ENVOY["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    (route,) = manager["route_config"]["virtual_hosts"][0]["routes"]
    policy = route["route"]["retry_policy"]
    assert policy["num_retries"] == 1
    assert "unavailable" in policy["retry_on"].split(",")
    assert policy["retry_host_predicate"][0]["name"] == "envoy.retry_host_predicates.previous_hosts"
    assert route["route"]["timeout"] == "0s"


def test_envoys_buffers_take_the_daemons_largest_message(settings):
    (listener,), (cluster,) = ENVOY["static_resources"]["listeners"], ENVOY["static_resources"]["clusters"]
    for where in (listener, cluster):
        assert where["per_connection_buffer_limit_bytes"] >= settings.server.max_message_bytes


def test_envoy_finds_the_service_of_the_kubernetes_example():
    (cluster,) = ENVOY["static_resources"]["clusters"]
    endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    address = endpoint["address"]["socket_address"]
    service = of_kind("Service")
    assert address["address"].startswith(f"{service['metadata']['name']}.")
    assert address["port_value"] == service["spec"]["ports"][0]["port"]
    assert cluster["transport_socket"]["typed_config"]["sni"] == address["address"]
