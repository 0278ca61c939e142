"""Roles of certificates: which patterns fit which subjects, and which calls need which role."""

from __future__ import annotations

import pytest
from _authority import Authority
from _caller import Context

from verifier.api._roles import Peer, Role, Roles, allowed_roles, peer_of, role_of_method


@pytest.fixture(scope="module")
def authority():
    return Authority()


def peer(authority, subject, **options):
    return peer_of(Context(authority.issue(subject, **options)[1]))


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("*", True),
        ("CN=node-1", True),
        ("CN=node-?", True),
        ("CN=node-*", True),
        ("OU=validators", True),
        ("O=bank", True),
        ("SAN=n1.nodes.example", True),
        ("SAN=*.nodes.example", True),
        ("CN=node", False),
        ("CN=NODE-1", False),
        ("CN=node-1x", False),
        ("OU=node-1", False),
        ("SAN=nodes.example", False),
        ("CN=[a-z]*", True),
    ],
)
def test_patterns(authority, pattern, fits):
    caller = peer(authority, "CN=node-1,OU=validators,O=bank", names=["n1.nodes.example"])
    roles = Roles({Role.VERIFY: [pattern]})
    assert roles.of(caller) == (frozenset({Role.VERIFY}) if fits else frozenset())


def test_a_value_that_looks_like_another_attribute_is_none(authority):
    """The whole subject is never matched as one text: a name cannot carry a second attribute in."""
    for subject in ("CN=x OU=admins", "CN=OU=admins"):
        assert Roles({Role.ADMIN: ["OU=admins"]}).of(peer(authority, subject)) == frozenset()


def test_one_pattern_of_several_is_enough_and_roles_add_up(authority):
    roles = Roles({Role.VERIFY: ["CN=a", "OU=ops"], Role.CIPHER: ["CN=b"], Role.ADMIN: ["OU=ops"]})
    assert roles.of(peer(authority, "CN=x,OU=ops")) == {Role.VERIFY, Role.ADMIN}
    assert roles.of(peer(authority, "CN=b")) == {Role.CIPHER}


def test_who_shows_no_certificate_has_the_roles_of_those(authority):
    roles = Roles({Role.VERIFY: [], Role.ADMIN: ["*"]}, without_certificate=[Role.VERIFY])
    assert roles.of(peer_of(Context())) == {Role.VERIFY}
    assert roles.of(peer(authority, "CN=a")) == {Role.ADMIN}


def test_names_of_callers(authority):
    assert peer(authority, "CN=a,OU=b").name == "OU=b,CN=a"
    assert peer_of(Context(peer="ipv4:10.0.0.7:41000")) == Peer("ipv4:10.0.0.7")
    assert peer_of(Context(peer="unix:")) == Peer("unix:")


@pytest.mark.parametrize(
    ("method", "role"),
    [
        ("/verifier.v1.Verifier/Verify", Role.VERIFY),
        ("/verifier.v1.CipherService/Transform", Role.CIPHER),
        ("/verifier.v1.PluginAdmin/Load", Role.ADMIN),
        ("/verifier.v1.Tomorrow/Anything", Role.ADMIN),
        ("/grpc.health.v1.Health/Check", None),
    ],
)
def test_what_a_method_needs(method, role):
    assert role_of_method(method) is role
    assert allowed_roles(method) == (None if role is None else {role})


def test_limits_are_told_to_any_role():
    assert allowed_roles("/verifier.v1.Verifier/GetLimits") == set(Role)
