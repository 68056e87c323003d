"""CHANGELOG.md is read by a user: a line for each change, releases that are not too long, dates in
order, and the version of `setup.cfg` as the newest release."""

from __future__ import annotations

import configparser
import re

from tests.support.jars import PROJECT

#: Lines of changes in one release, and characters of one.
LINES, CHARACTERS = 40, 160
RELEASE = re.compile("([0-9]+[.][0-9]+) \u2013 ([0-9]{4}-[0-9]{2}-[0-9]{2})")


def sections() -> dict[str, list[str]]:
    """Returns the lines below each heading, newest first."""
    parts = (PROJECT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    return {heading: lines for heading, *lines in (part.split("\n") for part in parts)}


def test_what_is_not_released_yet_is_on_top() -> None:
    assert next(iter(sections())) == "Unreleased"


def test_each_release_has_its_number_and_date_newest_first() -> None:
    releases = [RELEASE.fullmatch(heading) for heading in list(sections())[1:]]
    assert all(releases)
    order = [
        (release[2], [int(n) for n in release[1].split(".")]) for release in releases if release
    ]
    assert order == sorted(order, reverse=True)


def test_the_newest_release_is_the_version_of_the_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(PROJECT / "setup.cfg")
    newest = RELEASE.fullmatch(list(sections())[1])
    assert newest is not None and setup["metadata"]["version"].startswith(newest[1] + ".")


def test_no_release_has_more_lines_than_somebody_reads() -> None:
    changes = {
        heading: sum(line.startswith("- ") for line in lines)
        for heading, lines in sections().items()
    }
    assert {heading: n for heading, n in changes.items() if n > LINES} == {}


def test_each_change_is_one_short_line() -> None:
    for lines in sections().values():
        assert [line for line in lines if len(line) > CHARACTERS or line.startswith(" ")] == []
