"""The commit log of a broker in a DLedger group: what the configuration says of it."""

from __future__ import annotations

from functools import partial

import attrs

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.message.layout import BLANK_MAGIC, SIZE_AND_MAGIC
from rocketmq_tw.message.model import TRANSACTION_ROLLBACK, StoredMessage
from rocketmq_tw.message.names import LEADER_TOPIC
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.raft.core.config import NodeConfig, RaftConfig
from rocketmq_tw.raft.core.membership import MembershipError, parse_peers
from rocketmq_tw.raft.message_log import RaftLog
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.store.handles import HandlePool, Unsynced
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.store.paths import StorePaths
from rocketmq_tw.store.segments import Segments

#: Entries that may wait for a quorum, as many as stock lets wait.
MOST_WAITING_ENTRIES = 10_000
#: A turn of the reactor may bring as many on top.
_ROOM_FOR_A_TURN = 100_000
#: Stock encodes an entry in a buffer of 4 MiB.
_LARGEST_BODY = 4 * 1024 * 1024 - 48


@attrs.frozen
class GroupSettings:
    """This broker's place in its group: its broker id as a follower, and the member's settings."""

    broker_id: int
    node: NodeConfig

    @property
    def address(self) -> str:
        """`host:port` under which the other members reach this one."""
        return self.node.peers[self.node.raft.self_id]


def group_settings(broker: BrokerConfig, config: MessageStoreConfig) -> GroupSettings:
    """Returns what the keys of a DLedger group say. Raises `ConfigError` that names the key."""
    _refuse_what_does_not_fit(broker, config)
    if not config.dledger_group.strip():
        raise ConfigError("enableDLegerCommitLog=true without dLegerGroup: give the group's name")
    try:
        peers = parse_peers(config.dledger_peers)
    except MembershipError as error:
        raise ConfigError(f"dLegerPeers: {error}") from error
    own_id = config.dledger_self_id
    if own_id not in peers:
        raise ConfigError(f"dLegerSelfId={own_id}: give one of {', '.join(peers)}")
    number = own_id[1:]
    if not (number.isascii() and number.isdigit()):
        raise ConfigError(
            f"dLegerSelfId={own_id}: write a letter and a number, as n0, since a follower's broker"
            " id is that number and 1"
        )
    preferred = tuple(filter(None, (one.strip() for one in config.preferred_leader_id.split(";"))))
    for one in preferred:
        if one not in peers:
            raise ConfigError(f"preferredLeaderId={one}: give members of dLegerPeers")
    raft = RaftConfig(
        self_id=own_id,
        members=tuple(peers),
        preferred_leader_ids=preferred,
        data_file_size=config.mapped_file_size_commit_log,
        max_body_bytes=_LARGEST_BODY,
        max_pending_requests=MOST_WAITING_ENTRIES + _ROOM_FOR_A_TURN,
        # A leader whose oldest file is gone lets a follower begin where it begins itself.
        state_machine=False,
    )
    node = NodeConfig(group=config.dledger_group, peers=peers, raft=raft, snapshot_every=0)
    return GroupSettings(int(number) + 1, node)


def _refuse_what_does_not_fit(broker: BrokerConfig, config: MessageStoreConfig) -> None:
    refused = {
        "enableControllerMode": broker.enable_controller_mode
        and "a controller or the group gives the role, not both",
        "enabledAppendPropCRC": config.enabled_append_prop_crc
        and "a record in a DLedger group has no property with a CRC",
        "storePathDLedgerCommitLog": "," in config.store_path_dledger_commit_log
        and "the log is in one directory",
    }
    for key, why in refused.items():
        if why:
            raise ConfigError(f"{key} with enableDLegerCommitLog=true: {why}")


def make_group_log(host: Host) -> RaftLog:
    """Returns the log, not loaded yet; what it needs of the configuration is checked before
    that."""
    config = host.store_config
    size = config.mapped_file_size_commit_log
    return RaftLog(
        partial(_open_member, host), size, _LARGEST_BODY, open_older=partial(_open_older, host)
    )


def _open_older(host: Host) -> Segments | None:
    config, directory = host.store_config, StorePaths(host.store_config).commit_log
    if not host.files.exists(directory):
        return None
    size = config.mapped_file_size_commit_log
    older = Segments(HandlePool(host.files), directory, size, Unsynced())
    older.load("mappedFileSizeCommitLog")
    return older


def end_older_log(host: Host) -> None:
    """Lets a plain log that was there before the group end with its last file, as stock does: the
    group's begins behind it. Raises `StoreError`; to be called before each start."""
    config, files = host.store_config, host.files
    data = StorePaths(config).dledger_data
    directory = StorePaths(config).commit_log
    if not files.exists(directory) or not files.list(directory):
        return
    if files.exists(data) and files.list(data):
        return
    plain = MessageStore(config, files, host.now_ms)
    plain.load()
    end = plain.written_offset
    plain.close()
    older = _open_older(host)
    assert older is not None
    # The next one may have been made in advance: the group's log has its place.
    if len(older.starts) > 1 and older.starts[-1] >= end:
        older.cut(older.starts[-1], durable=True)
    room = older.end - end
    if room:
        older.write([SIZE_AND_MAGIC.pack(room, BLANK_MAGIC)], end)
        older.sync()
    older.close()


def _open_member(host: Host) -> MemberStore:
    config, paths = host.store_config, StorePaths(host.store_config)
    return MemberStore(
        host.files,
        paths.dledger,
        config.mapped_file_size_commit_log,
        data_directory=paths.dledger_data,
    )


def opening_record(store_host: tuple[str, int], now_ms: int, position: int) -> bytes:
    """Returns the record at `position` with which a new leader commits what the one before left it:
    of no queue, as a rolled back half message, so that stock's members pass over it too."""
    return encode_record(
        StoredMessage(
            topic=LEADER_TOPIC,
            queue_id=0,
            body=b"",
            sys_flag=TRANSACTION_ROLLBACK,
            born_timestamp=now_ms,
            born_host=store_host,
            store_timestamp=now_ms,
            store_host=store_host,
            physical_offset=position,
        )
    )
