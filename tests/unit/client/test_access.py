"""Signatures as stock's client hook makes them (made with its jar)."""

from rocketmq_tw.client.commands import Credentials
from rocketmq_tw.wire.command import RemotingCommand, version_name


def test_all_fields_and_the_body_are_signed() -> None:
    fields = {"b": "topic-ü", "a": "group", "e": "3"}
    command = RemotingCommand(310, ext_fields=fields, body="héllo".encode())
    Credentials("RocketMQ", "12345678", "tok").sign(command)
    assert command.ext_fields == fields | {
        "AccessKey": "RocketMQ",
        "SecurityToken": "tok",
        "Signature": "fwdKoOUCG+SLX++n6l9OUgxvAJk=",
    }


def test_the_flag_of_a_query_by_unique_key_is_not_signed() -> None:
    """Servers of 4.9 leave it out of what they check, and newer ones for clients of 4.9.3."""
    signatures = set()
    for flag in ({}, {"_UNIQUE_KEY_QUERY": "true"}):
        command = RemotingCommand(12, ext_fields={"topic": "t", "key": "k", **flag})
        Credentials("RocketMQ", "12345678").sign(command)
        signatures.add(command.ext_fields["Signature"])
        assert (version_name(command.version) == "V4_9_3") == bool(flag)
    assert len(signatures) == 1


def test_signing_again_changes_nothing() -> None:
    command = RemotingCommand(105, ext_fields={"topic": "t"})
    for _ in range(2):
        Credentials("RocketMQ", "12345678").sign(command)
        assert command.ext_fields["Signature"] == "x8T+qqY6qSAppsJzL3xb6ig28z0="
