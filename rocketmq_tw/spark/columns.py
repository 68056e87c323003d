"""The columns of a topic's table: Spark's types and Arrow's (docs/formats/spark-schema.md)."""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketmq_tw.spark.errors import OptionError
from rocketmq_tw.spark.options import Damaged

#: rocketmq-spark's nine, then ours.
SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("flag", IntegerType()),
        StructField("body", BinaryType()),
        StructField("properties", MapType(StringType(), StringType())),
        StructField("brokerName", StringType()),
        StructField("queueId", IntegerType()),
        StructField("queueOffset", LongType()),
        StructField("bornTimestamp", TimestampType()),
        StructField("storeTimestamp", TimestampType()),
        StructField("keys", ArrayType(StringType())),
        StructField("tags", StringType()),
        StructField("msgId", StringType()),
    ]
)


#: With the option damagedMessages: what is wrong with the body, null where nothing is.
PROBLEM = StructField("problem", StringType())


def table_schema(damaged: Damaged) -> StructType:
    """Returns all columns of a read."""
    return SCHEMA if damaged is Damaged.FAIL else StructType([*SCHEMA.fields, PROBLEM])


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the exact schema that Spark expects of our batches."""
    return to_arrow_schema(schema, timezone="UTC")


def check_schema(schema: StructType, damaged: Damaged = Damaged.FAIL) -> None:
    """Raises `OptionError` unless `schema` is a choice of our columns with their types.

    A schema that a user gives chooses columns, which saves making the others.
    """
    known = {column.name: column.dataType for column in table_schema(damaged).fields}
    for column in schema.fields:
        if column.name not in known:
            raise OptionError(
                f"the schema has {column.name}, which no topic has: choose from {', '.join(known)}"
            )
        if column.dataType != known[column.name]:
            raise OptionError(
                f"the schema has {column.name} as {column.dataType.simpleString()}:"
                f" it is {known[column.name].simpleString()}; convert it in a select"
            )
