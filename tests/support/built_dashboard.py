"""Stock's dashboard itself: built from its source with Maven, and asked over HTTP."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.cookiejar import CookieJar
from io import BytesIO
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, Request, build_opener

from tests.support.dashboard_cases import COMMIT, Json, RestCall
from tests.support.dashboard_site import DashboardSite
from tests.support.downloads import check_out, fetch, only_one
from tests.support.jars import BUILD, java_command
from tests.support.java_client import JavaClients
from tests.support.ports import ReservedPort
from tests.support.processes import ServerProcess
from tests.support.wait import wait_until

REPOSITORY = "https://github.com/apache/rocketmq-dashboard.git"
#: Without its web pages, which Node.js would make.
_PACKAGE = (
    *("-DskipTests", "-Dcheckstyle.skip", "-Djacoco.skip"),
    *("-Dskip.installnodenpm", "-Dskip.npm", "-Dmaven.antrun.skip", "package"),
)
_HEAP_MB = 512
_TIMEOUT = 60.0
#: A cell of a sheet.
_CELL = re.compile(r"<t[^>]*>([^<]*)</t>|<v>([^<]*)</v>")


def dashboard_jar(source: str = REPOSITORY) -> Path:
    """The dashboard of `COMMIT`, which the first caller builds out of the repository `source`, an
    address or a directory."""
    home = BUILD / "dashboard"
    tree, done = home / "source", home / "complete"
    with only_one(home):
        if not done.exists():
            check_out("the dashboard's source", source, COMMIT, tree)
            maven = ["mvn", "-q", "-B", "-f", str(tree / "pom.xml")]
            fetch("the dashboard's jars", [*maven, *_PACKAGE])
            done.touch()
    (jar,) = (tree / "target").glob("rocketmq-dashboard-*.jar")
    return jar


class BuiltDashboard(ServerProcess):
    """The dashboard before a name server."""

    def __init__(self, jar: Path, home: Path, namesrv: str) -> None:
        super().__init__("dashboard", home)
        self._jar = jar
        self._namesrv = namesrv
        self._port = ReservedPort()
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()))
        self._token: Mapping[str, str] = {}

    @property
    def address(self) -> str:
        return self._port.address

    def command(self) -> list[str]:
        return [
            *java_command(_HEAP_MB),
            f"-Duser.home={self.home}",
            "-jar",
            str(self._jar),
            f"--server.port={self._port.number}",
            f"--rocketmq.config.namesrvAddrs={self._namesrv}",
            "--rocketmq.config.isVIPChannel=false",
            f"--rocketmq.config.dataPath={self.home}/data",
        ]

    def ready(self) -> bool:
        """Whether it gives the token that it wants of who changes something."""
        token = json.loads(self._ask(Request(self._url("/rocketmq-dashboard/csrf-token"))))
        found = token.get("data", token)
        self._token = {found["headerName"]: found["token"]}
        return True

    def answer(self, call: RestCall, values: Mapping[str, str]) -> Json:
        """What it answers a request with, as JSON; of a sheet its cells."""
        method, path = call.request.split()
        query, body = call.query(values), call.body(values)
        url = self._url(path) + (f"?{urlencode(query)}" if query else "")
        request = Request(url, method=method, headers=dict(self._token))
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        told = self._ask(request)
        if told.startswith(b"PK"):
            return {"data": _cells(told), "errMsg": None, "status": 0}
        answer: Json = json.loads(told)
        return answer

    def _url(self, path: str) -> str:
        return f"http://{self.address}{path}"

    def _ask(self, request: Request) -> bytes:
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                told: bytes = answer.read()
        except HTTPError as error:
            told = error.read()
        return told


def _cells(sheet: bytes) -> list[str]:
    """The texts and numbers of all cells, row by row."""
    with zipfile.ZipFile(BytesIO(sheet)) as book:
        names = [name for name in book.namelist() if "sheet1.xml" in name or "Strings" in name]
        return [a or b for name in names for a, b in _CELL.findall(book.read(name).decode())]


class BuiltDashboardSite(DashboardSite):
    """A site whose dashboard is stock's own."""

    def __init__(self, java: JavaClients, kind: str, home: Path, jar: Path) -> None:
        super().__init__(java, kind, home)
        self._jar = jar
        self._built: BuiltDashboard | None = None

    @contextmanager
    def running(self) -> Iterator[BuiltDashboardSite]:
        with super().running():
            built = BuiltDashboard(self._jar, self._home / "dashboard", self._values["namesrv"])
            with built:
                self._built = built
                wait_until(self._has_collected, "the dashboard's own figures", interval=1)
                yield self

    def _has_collected(self) -> bool:
        """Whether it has asked for the figures that it collects each minute."""
        return all(
            self._data(f"GET /dashboard/{name}.query?date=$today") for name in ("broker", "topic")
        )

    def _told(self, call: RestCall) -> Json:
        if self._built is None:
            return super()._told(call)
        return self._built.answer(call, self._values)
