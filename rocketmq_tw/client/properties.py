"""Configuration as .properties text, as requests have it."""

from collections.abc import Mapping

from rocketmq_tw.wire.errors import WireError


def to_text(values: Mapping[str, str]) -> bytes:
    """Returns the text of keys and values."""
    # A client that asks for no configuration does without the import.
    import javaproperties

    text: str = javaproperties.dumps(dict(values), timestamp=None)
    return text.encode()


def from_text(text: bytes) -> dict[str, str]:
    """Returns the keys and values of a text; raises `WireError` for what is none."""
    from rocketmq_tw.config.properties import read_properties

    try:
        settings = read_properties(text.decode(), "the answer")
    except ValueError as error:
        raise WireError(f"the answer is no .properties text: {error}") from error
    return {setting.key: setting.value for setting in settings}
