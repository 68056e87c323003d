"""Addresses in networks."""

import pytest

from rocketmq_tw.net.networks import Networks, host_of, is_loopback


@pytest.mark.parametrize(
    ("address", "is_in"),
    [
        ("10.1.2.3:50000", True),
        ("10.1.2.3", True),
        ("10.2.2.3:50000", False),
        ("192.0.2.7:1", True),
        ("192.0.2.8:1", False),
        ("[fd00::1]:9876", True),
        ("fd00::1", True),
        ("[fe80::1]:9876", False),
        ("[::ffff:10.1.2.3]:9876", True),
        ("a.name.in.a.network:9876", False),
        ("", False),
        ("[", False),
    ],
)
def test_an_address_is_in_one_of_the_networks(address: str, is_in: bool) -> None:
    networks = Networks("10.1.0.0/16; 192.0.2.7 ;fd00::/8;")
    assert networks
    assert (address in networks) is is_in


def test_no_network_has_no_address() -> None:
    assert not Networks(" ; ")
    assert "127.0.0.1:1" not in Networks("")


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        ("127.0.0.1:5", True),
        ("127.8.8.8:5", True),
        ("[::1]:5", True),
        ("[::ffff:127.0.0.1]:5", True),
        ("10.0.0.1:5", False),
        ("localhost:5", False),
        ("", False),
    ],
)
def test_loopback(address: str, is_local: bool) -> None:
    assert is_loopback(address) is is_local


def test_hosts_are_compared_in_one_form() -> None:
    assert host_of("[fd00:0:0::1]:1") == host_of("fd00::1") == "fd00::1"
    assert host_of("[::ffff:10.0.0.1]:1") == host_of("10.0.0.1:2") == "10.0.0.1"
    assert host_of("broker.example:10911") == "broker.example"
