"""PostgreSQL and MariaDB of our own: in a temporary folder, on Unix sockets, as a user without rights, gone at the end.

Nothing of an installed server is used but its programs. Data survives the end of a server process, as it would in production, but not a
loss of power: nothing waits for the disk.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pymysql

START_SECONDS = 60.0
PASSWORD = "not:a@se/cret"
QUOTED_PASSWORD = "not%3Aa%40se%2Fcret"
INSTALL = "scripts/setup test installs it"


class DatabaseServer(ABC):
    """One server process. ``kind`` is what ``Database.kind`` says of its databases."""

    kind: str
    users: tuple[str, ...]
    stop_signal: int

    def __init__(self) -> None:
        self.folder = Path(
            tempfile.mkdtemp(prefix="jb-", dir="/tmp")
        )  # short: the path of a socket has 107 bytes at most
        self.data = self.folder / "data"
        self._user = _unprivileged(self.users)
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self.data.mkdir(mode=0o700)
        if self._user is not None:
            for path in (self.folder, self.data):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        self.initialise()
        self.start()

    @abstractmethod
    def initialise(self) -> None:
        """Fill the data folder."""

    @abstractmethod
    def command(self) -> Sequence[str]: ...

    @abstractmethod
    def admin(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the server's administrator; the rows of the last."""

    @abstractmethod
    def make_database(self, name: str) -> None: ...

    @abstractmethod
    def url(self, name: str, socket_folder: Path | None = None) -> str:
        """As the owner of database ``name``; ``socket_folder``: through sockets of the same names elsewhere."""

    @property
    @abstractmethod
    def socket(self) -> Path: ...

    @abstractmethod
    def kill_connections(self, name: str) -> int:
        """End every connection to database ``name``, as an administrator would; how many."""

    def new_database(self) -> str:
        """The URL of an empty one."""
        self._databases += 1
        name = f"jetbridge{self._databases}"
        self.make_database(name)
        return self.url(name)

    def start(self) -> None:
        # The server ends with the thread that started it (``_end_with_parent``).
        assert threading.current_thread() is threading.main_thread(), "start and restart servers in the main thread"
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            # Right after a crash PostgreSQL refuses to start until the last child of the old server has noticed.
            if self._process is None or self._process.poll() is not None:
                with (self.folder / "server.log").open("ab") as log:
                    self._process = subprocess.Popen(self.command(), stdout=log, stderr=log, **self._as_user())
            assert time.monotonic() < end, f"{self.kind} does not start:\n{self.log()}"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            self.admin("SELECT 1")
        except (psycopg.Error, pymysql.Error):
            return False
        return True

    def stop(self) -> None:
        self._end(self.stop_signal)

    def kill(self) -> None:
        """As if it had crashed."""
        self._end(signal.SIGKILL)

    def restart(self, *, crash: bool = False) -> None:
        if crash:
            self.kill()
        else:
            self.stop()
        self.start()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")[-4000:]

    def run(self, *command: str) -> None:
        """To the end, as the server's user."""
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder, **self._as_user())
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {"preexec_fn": _end_with_parent}
        user = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": ()}
        return {**user, "preexec_fn": _end_with_parent, "env": {"PATH": os.environ["PATH"], "HOME": str(self.folder)}}


class Postgres(DatabaseServer):
    kind = "postgresql"
    users = ("postgres", "nobody")
    stop_signal = signal.SIGINT  # fast: connections are ended, not waited for

    def initialise(self) -> None:
        # An operator's cluster sorts by a language; ours must not depend on it.
        options = ("--username=admin", "--auth=trust", "--encoding=UTF8", f"--locale={_some_language()}", "--no-sync")
        self.run(_postgres_program("initdb"), f"--pgdata={self.data}", *options)

    def command(self) -> Sequence[str]:
        values = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "full_page_writes": "off",
            "max_connections": "200",
            "shared_buffers": "64MB",
        }
        settings = [part for name, value in values.items() for part in ("-c", f"{name}={value}")]
        return (_postgres_program("postgres"), "-D", str(self.data), *settings)

    @property
    def socket(self) -> Path:
        return self.folder / ".s.PGSQL.5432"

    def admin(self, *statements: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(host=str(self.folder), user="admin", dbname="postgres", autocommit=True) as connection:
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
            return rows

    def make_database(self, name: str) -> None:
        if not self.admin("SELECT 1 FROM pg_roles WHERE rolname = 'jetbridge'"):
            self.admin(f"CREATE USER jetbridge PASSWORD '{PASSWORD}'")
        self.admin(f"CREATE DATABASE {name} OWNER jetbridge")

    def url(self, name: str, socket_folder: Path | None = None) -> str:
        return f"postgresql://jetbridge:{QUOTED_PASSWORD}@/{name}?host={socket_folder or self.folder}"

    def kill_connections(self, name: str) -> int:
        return len(self.admin(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"))


class MariaDb(DatabaseServer):
    kind = "mariadb"
    users = ("mysql", "nobody")
    stop_signal = signal.SIGTERM

    def initialise(self) -> None:
        self.run(
            _program("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={self.data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            *self._settings(),
        )

    def _settings(self) -> tuple[str, ...]:
        return (
            # Temporary tables are named by process ids, which others may have too where a folder is shared by containers.
            f"--tmpdir={self.data.parent}",
            "--innodb-flush-log-at-trx-commit=2",  # commits are handed to the system, which outlives the server
            "--innodb-flush-method=nosync",
            "--innodb-doublewrite=0",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M",
            "--aria-log-file-size=8M",
        )

    def command(self) -> Sequence[str]:
        return (
            _program("mariadbd"),
            "--no-defaults",
            f"--datadir={self.data}",
            f"--socket={self.socket}",
            f"--pid-file={self.folder}/pid",
            "--skip-networking",
            "--max-connections=200",
            *self._settings(),
        )

    @property
    def socket(self) -> Path:
        return self.folder / "mariadb.sock"

    def admin(self, *statements: str) -> list[tuple[Any, ...]]:
        connection = pymysql.connect(unix_socket=str(self.socket), user="root", autocommit=True)
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def make_database(self, name: str) -> None:
        self.admin(
            f"CREATE USER IF NOT EXISTS jetbridge@localhost IDENTIFIED BY '{PASSWORD}'",
            f"CREATE DATABASE {name}",
            f"GRANT ALL ON {name}.* TO jetbridge@localhost",
        )

    def url(self, name: str, socket_folder: Path | None = None) -> str:
        socket = (socket_folder or self.folder) / self.socket.name
        return f"mariadb://jetbridge:{QUOTED_PASSWORD}@localhost/{name}?unix_socket={socket}"

    def kill_connections(self, name: str) -> int:
        ids = self.admin(f"SELECT id FROM information_schema.processlist WHERE db = '{name}'")
        for (number,) in ids:
            try:
                self.admin(f"KILL {number}")
            except pymysql.Error as error:
                if error.args[0] != pymysql.constants.ER.NO_SUCH_THREAD:
                    raise
        return len(ids)


SERVERS: dict[str, type[DatabaseServer]] = {server.kind: server for server in (Postgres, MariaDb)}


def _unprivileged(users: Sequence[str]) -> pwd.struct_passwd | None:
    """Whom root turns into, since both servers refuse to run as root; None: we aren't root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return next(known[user] for user in users if user in known)


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    assert found is not None, f"{name} is missing: {INSTALL}"
    return found


def _postgres_program(name: str) -> str:
    # Debian keeps the programs of each release in a folder of their own.
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    found = shutil.which(name, path=str(folders[-1])) if folders else shutil.which(name)
    assert found is not None, f"PostgreSQL's {name} is missing: {INSTALL}"
    return found


def _some_language() -> str:
    installed = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout.split()
    return next((name for name in installed if name.lower() in ("en_us.utf8", "de_de.utf8")), "C.UTF-8")


def _end_with_parent() -> None:
    # prctl(PR_SET_PDEATHSIG, SIGQUIT): a killed test run leaves no server behind (man 2 prctl).
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)
