"""What a refused call leaves behind, and what the configuration makes of roles and rates."""

from __future__ import annotations

import pytest
from _authority import Authority
from _caller import Context

from verifier.api import Access, Denial
from verifier.api._rates import Rates
from verifier.api._roles import Role, Roles
from verifier.config import load_settings
from verifier.daemon import Daemon
from verifier.errors import CapacityError, ConfigError, DeniedError

VERIFY, LIMITS = "/verifier.v1.Verifier/Verify", "/verifier.v1.Verifier/GetLimits"
LOAD = "/verifier.v1.PluginAdmin/Load"


def test_a_denial_is_told_once_a_minute_for_each_caller_and_method():
    now = [0.0]
    told: list[Denial] = []
    counted = []
    access = Access(
        Roles({}),
        Rates({}),
        on_denied=told.append,
        count=lambda role, reason: counted.append((role, reason)),
        clock=lambda: now[0],
    )

    def call(method, host):
        with pytest.raises(DeniedError, match="needs the role"):
            access.check(method, Context(peer=f"ipv4:{host}:1"))

    for _ in range(50):
        call(VERIFY, "10.0.0.1")
    call(VERIFY, "10.0.0.2")
    call(LOAD, "10.0.0.1")
    assert [(d.caller, d.method) for d in told] == [
        ("ipv4:10.0.0.1", VERIFY),
        ("ipv4:10.0.0.2", VERIFY),
        ("ipv4:10.0.0.1", LOAD),
    ]
    assert counted == [("verify", "role")] * 51 + [("admin", "role")]
    now[0] = 61.0
    call(VERIFY, "10.0.0.1")
    assert (len(told), told[-1].again) == (4, 49)


def test_the_settings_as_they_come_let_local_callers_work_and_nobody_administer():
    access = Access.from_settings(load_settings())
    access.check(VERIFY, Context())
    access.check(LIMITS, Context())
    with pytest.raises(DeniedError, match="role admin"):
        access.check(LOAD, Context())


def test_an_admin_socket_is_for_administration_alone():
    access = Access.from_settings(load_settings(), admin_socket=True)
    access.check(LOAD, Context(peer="unix:"))
    with pytest.raises(DeniedError):
        access.check(VERIFY, Context(peer="unix:"))


def test_roles_and_rates_of_a_configuration(tmp_path):
    authority = Authority()
    files = authority.write(tmp_path)
    settings = load_settings(
        overrides={
            "server": files,
            "roles": {"verify": ["OU=validators"], "cipher": [], "admin": ["CN=root"], "without_certificate": []},
            "rates": {"verify_items_per_s": 100, "burst_s": 2},
        }
    )
    access = Access.from_settings(settings)
    validator = access.check(VERIFY, Context(authority.issue("CN=a,OU=validators")[1]))
    access.check(LOAD, Context(authority.issue("CN=root")[1]))
    for context in (Context(), Context(authority.issue("CN=root")[1])):
        with pytest.raises(DeniedError):
            access.check(VERIFY, context)
    access.charge(VERIFY, validator, 200)
    with pytest.raises(CapacityError, match="the role verify is used up") as caught:
        access.charge(VERIFY, validator, 100)
    assert 0.5 < caught.value.retry_after_s <= 1


@pytest.mark.parametrize(
    ("section", "name", "value", "words"),
    [
        ("roles", "verify", ["node-1"], "roles.verify"),
        ("roles", "verify", ["DN=node-1"], "roles.verify"),
        ("roles", "admin", ["CN=root"], "roles.admin needs server.tls_client_ca_file"),
        ("roles", "without_certificate", ["admin"], "roles.without_certificate"),
        ("rates", "verify_calls_per_s", 0, "rates.verify_calls_per_s"),
        ("admin", "socket_mode", "0x80", "admin.socket_mode"),
        ("server", "socket_mode", "999", "server.socket_mode"),
    ],
)
def test_settings_that_are_refused(section, name, value, words):
    with pytest.raises(ConfigError) as caught:
        load_settings(overrides={section: {name: value}})
    assert words in str(caught.value)


def test_every_service_of_the_contract_has_a_role():
    """A new service is for administrators until somebody says otherwise, here and in the documentation."""
    from verifier.api import _roles
    from verifier.v1 import admin_pb2, cipher_pb2, verifier_pb2

    services = {
        service.full_name
        for module in (verifier_pb2, cipher_pb2, admin_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    }
    assert services == set(_roles._SERVICES)
    assert set(_roles._SERVICES.values()) == set(Role)


@pytest.mark.parametrize("section", ["health", "metrics", "status"])
def test_opening_one_listener_opens_no_other(section):
    """The word that lets a listener out is that listener's own."""
    address = "0.0.0.0:1"
    open_one = {"listen": [address] if section == "health" else address, "insecure": True}
    Daemon(load_settings(overrides={section: open_one, "server": {"insecure": True}}))
    closed = open_one | {"insecure": False}
    with pytest.raises(ConfigError, match=rf"{section}\.listen: {address} .*set {section}\.insecure = true"):
        Daemon(load_settings(overrides={section: closed, "server": {"insecure": True}}))


@pytest.mark.parametrize("setting", ["listen", "urgent_listen"])
def test_no_listener_of_work_is_opened_to_others_without_tls(setting):
    open_one = {setting: ["0.0.0.0:1"]}
    Daemon(load_settings(overrides={"server": open_one | {"insecure": True}}))
    with pytest.raises(ConfigError, match=rf"server\.{setting}: 0\.0\.0\.0:1 can be reached from other hosts"):
        Daemon(load_settings(overrides={"server": open_one}))


def test_an_admin_port_needs_mutual_tls_however_local_it_is():
    with pytest.raises(ConfigError, match=r"admin\.listen: 127\.0\.0\.1:1: without mutual TLS"):
        Daemon(load_settings(overrides={"admin": {"listen": ["127.0.0.1:1"]}}))


def test_a_call_that_claims_more_items_than_any_may_have_owes_no_more_than_the_most():
    settings = {"server": {"max_items": 2000}, "rates": {"verify_items_per_s": 1000}}
    access = Access.from_settings(load_settings(None, settings))
    peer = access.check(VERIFY, Context())
    access.charge(VERIFY, peer, (1 << 32) - 1)
    wait = access.wait_s(VERIFY, peer, 1000)
    assert 0 < wait <= 2.0, "1000 of the burst were taken, and 1000 are owed"
