"""The errors of a store; the broker maps the classes to response codes."""


class StoreError(Exception):
    """The store refuses or cannot; the text says why and what to change."""


class IllegalMessageError(StoreError):
    """This message can never be stored: too large, an illegal name, too many properties."""


class NotWritableError(StoreError):
    """Nothing can be stored now: disk full, a failed write or fsync, not loaded, closed."""


class DamagedStoreError(StoreError):
    """Files that are not what they must be, or cannot be read; nothing was changed."""
