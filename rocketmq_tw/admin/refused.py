"""Commands of mqadmin that cannot be done here: each says why, and that nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click

from rocketmq_tw.admin.tool import fail

NO_ACCOUNTS = (
    "there is no access control yet, and nothing is changed: restrict who reaches ports, who"
    " may administer with adminAddresses, and who may be a broker with clusterAddresses"
)
#: Commands to their options: letter and long name, with ! where the option is required.
_ACCOUNTS: Mapping[str, str] = {
    "createUser": "c clusterName, b brokerAddr, u username!, p password!, t userType",
    "updateUser": "c clusterName, b brokerAddr, u username!, p password, t userType, s userStatus",
    "deleteUser": "c clusterName, b brokerAddr, u username!",
    "getUser": "c clusterName, b brokerAddr, u username",
    "listUser": "c clusterName, b brokerAddr, f filter",
    "copyUser": "f fromBroker!, t toBroker!, u usernames",
    "createAcl": "c clusterName, b brokerAddr, s subject!, r resources!, a actions!, i sourceIp,"
    " d decision!",
    "updateAcl": "c clusterName, b brokerAddr, s subject!, r resources!, a actions!, d decision!,"
    " i sourceIp",
    "deleteAcl": "c clusterName, b brokerAddr, s subject!, r resources",
    "getAcl": "c clusterName, b brokerAddr, s subject",
    "listAcl": "c clusterName, b brokerAddr, s subject, r resource",
    "copyAcl": "f fromBroker!, t toBroker!, s subjects",
    "clusterAclConfigVersion": "b brokerAddr, c clusterName",
    "getAclConfig": "b brokerAddr, c clusterName",
    "updateAclConfig": "a accessKey!, s secretKey!, b brokerAddr, c clusterName, t topicPerms,"
    " u defaultGroupPerm, w whiteRemoteAddress, g groupPerms, i defaultTopicPerm, m admin",
    "deleteAclConfig": "a accessKey!, b brokerAddr, c clusterName",
    "updateGlobalWhiteAddr": "g globalWhiteRemoteAddresses!, p aclFileFullPath, b brokerAddr,"
    " c clusterName",
}
NO_ROCKSDB = (
    "nothing is in RocksDB here: queues, topics and groups are in files of their own, see"
    " exportMetadata"
)
_ROCKSDB: Mapping[str, str] = {
    "checkRocksdbCqWriteProgress": "c cluster!, t topic, cf checkFrom",
    "rocksDBConfigToJson": "t configType, p configPath, e exportFile, j jsonEnable, c cluster,"
    " b brokerAddr",
    "exportMetadataInRocksDB": "p path!, t configType!, j jsonEnable",
}
NO_COMPACTION = "there are no compacted topics here, so there is no log of theirs to show"
_COMPACTION: Mapping[str, str] = {"dumpCompactionLog": "f file"}


class _Refused(click.Command):
    """Says why it is refused before it asks for an option that is missing."""

    reason = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            fail(f"{self.name}: {self.reason}", error)


def _refused(name: str, options: str, reason: str) -> click.Command:
    def refuse(**_: object) -> None:
        fail(f"{name}: {reason}")

    command: Callable[..., None] = refuse
    for option in options.split(", "):
        letter, _, long_name = option.rstrip("!").partition(" ")
        command = click.option(
            f"-{letter}", f"--{long_name}", f"option_{letter}", required=option.endswith("!")
        )(command)
    made = click.command(name, cls=_Refused, help=f"Is refused: {reason.partition(':')[0]}.")(
        command
    )
    made.reason = reason
    return made


COMMANDS = {
    name: _refused(name, options, reason)
    for commands, reason in (
        (_ACCOUNTS, NO_ACCOUNTS), (_ROCKSDB, NO_ROCKSDB), (_COMPACTION, NO_COMPACTION)
    )
    for name, options in commands.items()
}  # fmt: skip
