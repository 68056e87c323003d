"""What mqadmin prints of our servers, and stock's admin client is answered, beside stock's: its
shape and text, with numbers, times and addresses masked."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from tests.support.cluster import OURS
from tests.support.java_client import JavaClients
from tests.support.mqadmin_cases import (
    CASES,
    ELECTED_CASES,
    ENDLESS,
    NEW,
    SLAVE_CASES,
    Case,
)
from tests.support.mqadmin_site import TOPIC, Site

#: The servers of stock that ours are like; the tools may be older.
STOCK = NEW

#: What differs from run to run, and what is compared in its place; in this order.
_MASKS = [
    (re.compile(pattern), mask)
    for pattern, mask in (
        (rf"/[\w./@#-]*/(?:{OURS}|{re.escape(STOCK)})\b", "HOME"),
        (r"\b(?:\d{1,3}\.){3}\d{1,3}:\d+\b", "ADDRESS"),
        (r"\b(?:\d{1,3}\.){3}\d{1,3}@[\w#.-]+", "CLIENT"),
        (r"\b(?:\d{1,3}\.){3}\d{1,3}\b", "HOST"),
        # A message that is sent again is named without a blank behind it.
        (r"\b[0-9A-Fa-f]{32}(?=\b|SendResult)", "ID"),
        (r"\d{4}-\d\d-\d\d[ T,]+\d\d:\d\d:\d\d(?:[.,:]\d+)?", "TIME"),
        (r"(?<![.\w])\d{13}\b", "TIME"),
        # A remark is each server's own; its code is not.
        (r"(exceptionDesc=CODE:\d+ +DESC:).*?(\](?=MessageTrack|$))", r"\1REMARK\2"),
        (r'("exceptionDesc": "CODE:\d+ DESC:)[^"]*', r"\1REMARK"),
        (r"(\bDESC: ).*?( BROKER: .*|$)", r"\1REMARK\2"),
        (r"(\w)@[0-9a-f]{6,8}\b", r"\1@HASH"),
        (r"\$\$Lambda.*", "LAMBDA"),
        (r"\b\d+ms\b", "N ms"),
        # A young broker of stock's has fewer windows.
        (r'((?:Tps|putMessageDistributeTime)"?\s*: ).*', r"\1N"),
        (r"\b\d+(?:\.\d+)? (?:[KMGT]i)?B\b", "SIZE"),
        # Stock works these out of the machine's cores.
        (r"(\w(?:ThreadPoolNums|CallbackExecutorThreads)\s*= ).*", r"\1N"),
    )
]
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:E-?\d+)?(?!\w)")
#: The code of a refusal is no number like others.
_CODE = re.compile(r"(CODE: ?)(\d+)")
#: Java prints them in the order of a hash table.
_PROPERTIES = re.compile(r"(roperties(?:=|:\s*))\{([^{}]*)\}")
_BLANKS = re.compile(r"[ \t]+")
#: Where in the tool it gave up, and the link that a remark of stock's may end with.
_NOISE = re.compile(
    r"^\s+at |^\s*\.\.\. \d+ more|^See https?://|^For more information, please visit the url"
)
#: Stock 5.3.3 lists a connected group under the name of its topic, and then fails to find it.
_TOPIC_AS_GROUP = re.compile(rf"MessageTrack \[consumerGroup={TOPIC},.*?\)\]\n?", re.DOTALL)
_TOPIC_AS_GROUP_ROW = re.compile(rf"\b{TOPIC}\s+{TOPIC}\b")


#: Makes the site for a JVM with clients, a kind of server and a directory.
MakeSite = Callable[[JavaClients, str, Path], Site]


@attrs.frozen
class Outcome:
    """How the answers to one call compare: the lines in which they differ, as a diff has them, what
    ours printed, and the version of the tools."""

    case: Case
    difference: list[str]
    ours: str
    version: str = NEW

    @property
    def is_as_expected(self) -> bool:
        """Whether ours is what its case says, and differs from stock's as that says."""
        if not self._is_as_said:
            return False
        if self.case.differs:
            return sorted(self.difference) == sorted(self.case.differs)
        return bool(self.difference) == bool(self.case.unlike)

    @property
    def _is_as_said(self) -> bool:
        return bool(re.search(self.case.prints, self.ours, re.MULTILINE))

    def __str__(self) -> str:
        if not self._is_as_said and bool(self.difference) == bool(self.case.unlike):
            return f"{self._call}: no {self.case.prints!r} in:\n{self.ours}"
        if not self.difference:
            return f"{self._call}: equal, though its case says why not"
        return "\n    ".join([self._call, *self.difference])

    @property
    def _call(self) -> str:
        return f"{self.case.line} ({self.version})"


def compare(
    java: JavaClients,
    home: Path,
    cases: Sequence[Case] = CASES,
    site: MakeSite = Site,
    *more_tools: JavaClients,
) -> Iterator[Outcome]:
    """Runs each call of the tools of `java`, and then of `more_tools`, that have it on sites of
    ours and of stock's servers, in files below `home`."""
    calls = [
        (case, tools)
        for case in cases
        for tools in (java, *more_tools)
        if tools.version in case.versions
    ]
    answers = {kind: _answers(site(java, kind, home), calls) for kind in (STOCK, OURS)}
    for (case, tools), stock, ours in zip(calls, answers[STOCK], answers[OURS], strict=True):
        yield Outcome(case, difference(case, stock, ours), ours, tools.version)


def report(outcomes: Sequence[Outcome]) -> int:
    """Prints where answers differ, why they may, and how many do; returns how many are not as their
    cases say."""
    for outcome in outcomes:
        if outcome.difference:
            print(f"{outcome}\n    why: {outcome.case.unlike or '?'}")
    wrong = sum(not outcome.is_as_expected for outcome in outcomes)
    equal = sum(not outcome.difference for outcome in outcomes)
    print(f"{len(outcomes)} calls, {equal} equal, {wrong} not as their cases say")
    return wrong


def _answers(site: Site, calls: Sequence[tuple[Case, JavaClients]]) -> list[str]:
    answers = []
    with site.running():
        for case, tools in calls:
            site.tools = tools
            answers.append(site.run(case))
    return answers


def difference(case: Case, stock: str, ours: str) -> list[str]:
    """The lines in which two answers differ; empty where they say the same."""
    expected, found = shape(case, stock), shape(case, ours)
    if case.more_is_fine:
        missing = Counter(expected) - Counter(found)
        return [f"-{line}" for line in missing.elements()]
    diff = difflib.unified_diff(expected, found, lineterm="", n=0)
    return [line for line in list(diff)[2:] if not line.startswith("@@")]


def shape(case: Case, printed: str) -> list[str]:
    """The lines of what a call printed, without what differs from run to run."""
    lines = [
        line
        for line in _TOPIC_AS_GROUP.sub("", printed).splitlines()
        if line.strip()
        and not _NOISE.match(line)
        and not _TOPIC_AS_GROUP_ROW.search(line)
        and not (case.without and re.search(case.without, line))
    ]
    shaped = [_masked(line, exact=case.exact) for line in lines]
    return sorted(shaped) if case.unordered else shaped


def _masked(line: str, *, exact: bool) -> str:
    for pattern, mask in _MASKS:
        line = pattern.sub(mask, line)
    line = _PROPERTIES.sub(_in_order, line)
    if not exact:
        line = _NUMBER.sub("N", _CODE.sub(r"\1code\2", line))
    return _BLANKS.sub(" ", line).strip()


def _in_order(properties: re.Match[str]) -> str:
    return properties[1] + ", ".join(sorted(properties[2].split(", ")))


def page() -> str:
    """The page of docs about all calls: what the cases say, which the tests hold them to."""
    return f"""{_HEAD}
{_table((*CASES, *ENDLESS))}
## Controllers and containers
On a controller, the two brokers of a group that it leads, and a container that begins without
brokers.

{_table(ELECTED_CASES)}
## On a slave
On a master, `address`, and its `slave`, and on all brokers of their cluster. A slave of ours says
success to what is its master's to change (topics, groups, modes of reading), and changes nothing;
stock's takes it, and has its master's again at its next copy.

{_table(SLAVE_CASES)}
## Elsewhere stricter or milder
- The comparison asks from loopback. From other hosts most keys of `updateBrokerConfig`,
  `updateNamesrvConfig` and `updateControllerConfig` are refused (16, NO_PERMISSION) unless
  `adminAddresses` has their address, and where it is set so is what removes data or ends a
  service: [configuration.md](configuration.md#who-may-do-what). Stock takes them from everybody.
- An offset that is committed (request 15, as by stock's `cloneGroupOffset`) makes its group where
  `autoCreateSubscriptionGroup` is true; stock refuses it with 26. `rmqadmin cloneGroupOffset` to a
  group that is not there is refused.
"""


def _table(cases: Iterable[Case]) -> str:
    rows = "".join(
        f"| `{case.line.replace('$', '')}` | {', '.join(case.versions)} | {_verdict(case)} |\n"
        for case in cases
    )
    return f"| call | mqadmin | ours, beside stock {STOCK} |\n|---|---|---|\n{rows}"


def _verdict(case: Case) -> str:
    return case.unlike or ("the same, and more lines" if case.more_is_fine else "the same")


_HEAD = """# Stock's mqadmin on our servers
Made by `python -m tools.compare_mqadmin --page` out of `tests/support/mqadmin_cases.py`;
`tests/interop/test_mqadmin_compare.py` runs every call on servers of ours and on stock's, and fails
where a row is wrong. Numbers, times, addresses and remarks of refusals are masked; the codes of
refusals are not. Words such as `address` and `topic` stand for values.
Of `clusterRT` and `startMonitoring`, which run until they are killed, it is the first round.
`viewMessage`, `examineTopicConfig`, `getAllTopicConfig` and `getAllSubscriptionGroup` are calls of
stock's admin client, which its dashboard makes and no command does.

Left out of the comparison: stock 5.3.3 lists a connected group under the name of its topic, and its
tools then fail to find a group of that name.
"""
