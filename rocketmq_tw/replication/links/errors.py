"""What ends a link."""


class LinkError(Exception):
    """The other end broke the protocol or left the log's line; the link must be closed."""
