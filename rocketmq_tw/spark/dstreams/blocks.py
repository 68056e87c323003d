"""Blocks as Spark's raw network receiver takes them: a length and a Java-serialised `byte[]`.

Java Object Serialization Stream Protocol, version 5: magic, version, then an array object of the
class `[B`. The bytes are a pickled list of records, which is what PySpark expects of a batch.
"""

import pickle
from collections.abc import Sequence
from struct import Struct

from rocketmq_tw.spark.dstreams.records import Record

_LENGTH = Struct(">i")
_BYTE_ARRAY = bytes.fromhex(
    "aced0005"  # the stream's magic and version
    "75"  # TC_ARRAY
    "72" "0002" "5b42" "acf317f8060854e0"  # TC_CLASSDESC, "[B", its serial version
    "02" "0000" "78" "70"  # serialisable, no fields, TC_ENDBLOCKDATA, no super class
)  # fmt: skip


def encode_block(records: Sequence[Record]) -> bytes:
    """Returns one block with its 4-byte big-endian length in front."""
    content = pickle.dumps([tuple(record) for record in records], protocol=4)
    block = b"".join((_BYTE_ARRAY, _LENGTH.pack(len(content)), content))
    return _LENGTH.pack(len(block)) + block
