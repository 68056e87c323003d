"""The errors that are raised while a query is planned, with what to change."""


class SparkSourceError(ValueError):
    """Base of the errors of `spark`."""


class OptionError(SparkSourceError):
    """An option that is unknown, missing, contradicts another one or has no such value."""


class OffsetError(SparkSourceError):
    """Offsets that cannot be read as JSON, name no queue of the topics or are out of range."""


class DataLossError(SparkSourceError):
    """Messages that were to be read are gone."""
