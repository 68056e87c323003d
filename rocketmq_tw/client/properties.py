"""Configuration as .properties text, as requests have it."""

from collections.abc import Mapping


def to_text(values: Mapping[str, str]) -> bytes:
    """Returns the text of keys and values."""
    # A client that asks for no configuration does without the import.
    import javaproperties

    text: str = javaproperties.dumps(dict(values), timestamp=None)
    return text.encode()


def from_text(text: bytes) -> dict[str, str]:
    """Returns the keys and values of a text."""
    import javaproperties

    values: dict[str, str] = javaproperties.loads(text.decode())
    return values
