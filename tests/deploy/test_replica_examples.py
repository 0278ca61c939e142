"""The examples for replicas: what Kubernetes and Envoy would say of them, and the numbers that must fit together."""

from __future__ import annotations

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


@pytest.fixture(scope="module")
def envoy():
    """Checks a configuration against Envoy's messages; envoy_schema.json says where it has them from."""
    jsonschema = pytest.importorskip("jsonschema", reason="no jsonschema: pip install 'verifier[dev]'")
    schema = json.loads((Path(__file__).parent / "envoy_schema.json").read_text())
    return jsonschema.Draft202012Validator(schema)


def test_envoy_knows_every_field(envoy):
    envoy.validate(ENVOY)
    (cluster,) = ENVOY["static_resources"]["clusters"]
    assert cluster["health_checks"][0]["grpc_health_check"]["service_name"] == SERVICE


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        (("clusters", 0), "no_such_field", 1),
        (("clusters", 0), "lb_policy", "LEAST_REQUESTS"),
        (("clusters", 0), "connect_timeout", "2"),
        (("clusters", 0, "health_checks", 0), "tcp_health_check", {}),  # besides grpc_health_check
        (("listeners", 0), "per_connection_buffer_limit_bytes", "64M"),
        (("listeners", 0, "filter_chains", 0, "filters", 0, "typed_config"), "no_such_field", 1),
        (("listeners", 0, "filter_chains", 0, "filters", 0, "typed_config"), "@type", "type.googleapis.com/unknown"),
    ],
)
def test_envoy_would_refuse_what_it_does_not_know(envoy, path, name, value):
    wrong = json.loads(json.dumps(ENVOY))
    place = wrong["static_resources"]
    for step in path:
        place = place[step]
    place[name] = value
    assert not envoy.is_valid(wrong)


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
