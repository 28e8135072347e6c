"""What Spark needs beside PySpark: a Java of the machine, and jars by a committed lock.

Spark 4 runs on Java 17 or 21. A runtime cannot come from a Python package (Spark's launcher wants
``jdk.incubator.vector``), so it stays a prerequisite of the machine.

Jars are by default those that the installed Spark needs for Delta and Kafka. Each is fetched once
into the user's cache by the Ivy inside PySpark, by itself (its transitive dependencies would bring
older copies of what Spark already has), and never used without a matching size and sha256.
``python -m catalog_migrate.engine.spark.jars`` fetches them and prints progress.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from xml.sax.saxutils import quoteattr

import msgspec

from catalog_migrate.errors import CatalogMigrateError, PrerequisiteMissing
from catalog_migrate.model.wording import join_some
from catalog_migrate.store.local import damaged_package_error

# -- Java ------------------------------------------------------------------------------------------

_SUPPORTED_JAVA = (17, 21)
_JAVA_REMEDY = (
    "install Java 17 or 21 (Debian and Ubuntu: apt-get install openjdk-17-jre-headless) and set"
    " JAVA_HOME to it, or put its java on the PATH"
)
_SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""With one compiler the JVM would reserve 48 MiB for code. Spark fills that in minutes, and from
then on code is swept out and compiled again; 240 MiB is what it reserves for two compilers."""
_JAVA_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?[^"]*"')
_JAVA_TIMEOUT = 60.0


def prefer_short_runs(env: MutableMapping[str, str]) -> None:
    """Have the JVMs that are started with ``env`` compile quickly rather than well.

    For demonstrations and tests, which end before the second compiler has paid for itself: a third
    of a short session's CPU time is spent there and in collector threads. Work on many rows takes
    longer so; whatever the user has set for ``java`` stays.
    """
    env.setdefault("JDK_JAVA_OPTIONS", _SHORT_RUN)


def check_java(env: Mapping[str, str] | None = None) -> str:
    """Return the path of the ``java`` that Spark will use.

    ``env`` stands for the environment (default: this process'): ``JAVA_HOME`` wins over ``PATH``,
    as in Spark's own launcher. Raises :class:`PrerequisiteMissing` when there is no Java, it does
    not run, or it is neither 17 nor 21.
    """
    executable = find_java(os.environ if env is None else env)
    version = java_version(executable)
    if version not in _SUPPORTED_JAVA:
        raise PrerequisiteMissing(
            f"{executable} is Java {version}; Spark 4 needs Java 17 or 21", remedy=_JAVA_REMEDY,
            executable=executable, version=version,
        )
    return executable


def find_java(env: Mapping[str, str]) -> str:
    """The ``java`` of ``JAVA_HOME``, else of ``PATH``; PrerequisiteMissing when there is none."""
    home = env.get("JAVA_HOME", "")
    if home:
        candidate = Path(home) / "bin" / ("java.exe" if os.name == "nt" else "java")
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
        raise PrerequisiteMissing(
            f"JAVA_HOME is {home}, but there is no program {candidate}",
            remedy=f"unset JAVA_HOME to use the java on the PATH, or {_JAVA_REMEDY}",
            java_home=home,
        )
    found = shutil.which("java", path=env.get("PATH", ""))
    if found is None:
        raise PrerequisiteMissing(
            "there is no Java: JAVA_HOME is not set and no java is on the PATH", remedy=_JAVA_REMEDY
        )
    return found


def java_version(executable: str) -> int:
    """Major version of a ``java`` program (8 for "1.8.0"); PrerequisiteMissing when it fails."""
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, errors="replace",
            timeout=_JAVA_TIMEOUT, check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrerequisiteMissing(
            f"{executable} could not be run: {error}", remedy=_JAVA_REMEDY, executable=executable
        ) from error
    said = f"{answer.stderr}\n{answer.stdout}".strip()
    match = _JAVA_VERSION.search(said)
    if match is None:
        first = said.splitlines()[0] if said else f"nothing, exit status {answer.returncode}"
        raise PrerequisiteMissing(
            f"{executable} -version does not report a Java version, but: {first}",
            remedy=_JAVA_REMEDY, executable=executable,
        )
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major


# -- jars ------------------------------------------------------------------------------------------

SETTINGS_VARIABLE = "CATALOG_MIGRATE_IVY_SETTINGS"
Progress = Callable[[str], None]

PACKAGE = "catalog_migrate.engine.spark"
LOCKED_PYSPARK = ("4.0.1", "4.1.1", "4.2.0")
"""Versions of PySpark for which there is a lock, one of each minor that is supported."""

_PYSPARK = re.compile(r"""^__version__[^=\n]*=\s*["']([^"']+)""", re.MULTILINE)
_FETCH_TIMEOUT = 1800.0
_DOWNLOADING = re.compile(r"^downloading\s+(\S+)")
_CAUSE = re.compile(
    r"refused|failed:|access error|\[FAILED|exception|unknown ?host|timed out", re.IGNORECASE
)
_CONSEQUENCE = re.compile(r"not found")
_NAMED = 3


class LockedJar(msgspec.Struct, frozen=True):
    """One jar of the lock: where it comes from and what it must look like.

    ``classifier`` and ``extension`` are there for what is no artifact's own jar.
    """

    organisation: str
    artifact: str
    revision: str
    size: int
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def coordinates(self) -> str:
        """``organisation:artifact:revision``, and what it is if it is not the jar."""
        more = (self.extension, self.classifier) if self.classifier else ()
        return ":".join((self.organisation, self.artifact, self.revision, *more))

    @property
    def filename(self) -> str:
        """Name in the cache; the organisation keeps equal artifact names apart."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return (
            f"{self.organisation}_{self.artifact}-{self.revision}{classifier}.{self.extension}"
        )


MSK_JAR = LockedJar(
    "software.amazon.msk", "aws-msk-iam-auth", "2.3.5", 13631348,
    "bcd6020ce1ca2c3f1a65e087057dc8c0757185ba1f169b38e0eda54b617e4225", "all",
)
"""What Kafka's clients log in to MSK by IAM with, all that it needs inside."""


def read_locked_jars(package: str = PACKAGE, name: str | None = None) -> tuple[LockedJar, ...]:
    """Return the lock committed as file ``name`` of ``package``, in its order.

    The default is what Delta and Kafka need with the PySpark that is installed: a lock a version.
    Raises :class:`PrerequisiteMissing` where PySpark is missing, or of a version without a lock.
    """
    name = name or f"jars-{locked_pyspark()}.lock.json"
    try:
        text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    except OSError as error:
        raise damaged_package_error(f"its file {name} cannot be read: {error.strerror}") from error
    return tuple(
        LockedJar(
            row["organisation"], row["artifact"], row["revision"], row["bytes"], row["sha256"]
        )
        for row in json.loads(text)["jars"]
    )


def delta_jars() -> tuple[LockedJar, ...]:
    """Of the installed Spark's lock what Delta needs, which is all but what Kafka needs."""
    return tuple(
        jar for jar in read_locked_jars() if jar.organisation in ("io.delta", "io.unitycatalog")
    )


def avro_jars() -> tuple[LockedJar, ...]:
    """The committed lock of what reads and writes Avro with the PySpark that is installed.

    Errors are those of :func:`read_locked_jars`.
    """
    return read_locked_jars(PACKAGE, f"avro-{locked_pyspark()}.lock.json")


def cache_directory(env: Mapping[str, str] | None = None) -> Path:
    """Where the jars lie: below ``XDG_CACHE_HOME`` when that is absolute, else ``~/.cache``."""
    variables = os.environ if env is None else env
    base = Path(variables.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".cache"
    return base / "catalog-migrate" / "jars"


def ensure_jars(
    on_progress: Progress | None = None, *, jars: Sequence[LockedJar] | None = None,
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the paths of the verified jars, fetching those that are missing or damaged.

    ``on_progress`` gets one line of text for each thing that happens (none when all is there).
    ``jars`` is the lock to fulfil (default: the one of Spark), ``env`` the environment (default:
    this process'): ``XDG_CACHE_HOME``, ``JAVA_HOME``, ``PATH`` and ``CATALOG_MIGRATE_IVY_SETTINGS``
    are read from it. Safe when several processes do it at once: a jar appears by rename, whole.

    Raises :class:`PrerequisiteMissing` when Java or PySpark is missing, a download is refused, or a
    downloaded jar is not the locked one (it is then not kept).
    """
    variables = os.environ if env is None else env
    wanted = read_locked_jars() if jars is None else tuple(jars)
    say = on_progress or _silent
    directory = cache_directory(variables)
    missing = [jar for jar in wanted if not _is_verified(directory / jar.filename, jar)]
    if missing:
        megabytes = sum(jar.size for jar in missing) / 1e6
        say(f"fetching {len(missing)} of {len(wanted)} jars ({megabytes:.1f} MB) into {directory}")
        _fetch(missing, directory, variables, say)
        say(f"all {len(wanted)} jars are there and verified")
    return [str(directory / jar.filename) for jar in wanted]


def locate_pyspark() -> Path:
    """Directory of the installed pyspark package, without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PrerequisiteMissing(
            "PySpark is not installed in this Python environment",
            remedy="pip install 'catalog_migrate[spark]'",
        )
    return Path(spec.origin).parent


def pyspark_version() -> str:
    """Return the version of the installed PySpark, without importing it."""
    path = locate_pyspark() / "version.py"
    found = _PYSPARK.search(path.read_text(encoding="utf-8"))
    if found is None:
        raise damaged_package_error(f"{path} tells no version")
    return found[1]


def locked_pyspark() -> str:
    """Return the version of the installed PySpark, for which jars are locked.

    Raises :class:`PrerequisiteMissing` for any other one: Delta's jars fit one minor of Spark, and
    those for Kafka one version.
    """
    version = pyspark_version()
    if version not in LOCKED_PYSPARK:
        raise PrerequisiteMissing(
            f"PySpark {version} is installed, and jars are locked for"
            f" {' and '.join([', '.join(LOCKED_PYSPARK[:-1]), LOCKED_PYSPARK[-1]])} only",
            remedy=f"pip install pyspark=={LOCKED_PYSPARK[-1]}, or hand over a session of your own"
            " that has Delta",
            version=version, locked=LOCKED_PYSPARK,
        )
    return version


def ivy_module(jars: Sequence[LockedJar]) -> str:
    """The ``ivy.xml`` that asks for exactly these jars, none of them with what it depends on."""
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.artifact)}"
        f' rev={quoteattr(jar.revision)} transitive="false"' + _classifier_suffix(jar)
        for jar in jars
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        '  <info organisation="catalog-migrate" module="jars"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        '  <dependencies defaultconf="default->master">\n'
        f"{dependencies}\n"
        "  </dependencies>\n"
        "</ivy-module>\n"
    )


def _classifier_suffix(jar: LockedJar) -> str:
    """The end of a dependency: by itself it is the artifact's own jar."""
    if not jar.classifier:
        return "/>"
    kind = quoteattr(jar.extension)
    return (
        f' conf="default->default"><artifact name={quoteattr(jar.artifact)} type={kind} ext={kind}'
        f" m:classifier={quoteattr(jar.classifier)}/></dependency>"
    )


def _fetch(
    jars: Sequence[LockedJar], directory: Path, env: Mapping[str, str], say: Progress
) -> None:
    """Download into a private directory, verify, and only then rename into the cache."""
    java = check_java(env)
    classpath = locate_pyspark() / "jars" / "*"
    settings = _settings_arguments(env)
    with _private_directory(directory) as work:
        (work / "ivy.xml").write_text(ivy_module(jars), encoding="utf-8")
        command = [
            java,
            f"-Divy.home={work / 'ivy'}",
            "-cp",
            str(classpath),
            "org.apache.ivy.Main",
            *settings,
            "-ivy",
            str(work / "ivy.xml"),
            "-confs",
            "default",
            "-types",
            *dict.fromkeys(["jar", "bundle", *(jar.extension for jar in jars)]),
            "-retrieve",
            f"{work}/out/[organisation]_[artifact]-[revision](-[classifier]).[ext]",
        ]
        complaints = _run_ivy(command, env, say)
        arrived = work / "out"
        absent = [jar for jar in jars if not (arrived / jar.filename).is_file()]
        if absent:
            names = join_some([jar.coordinates for jar in absent], _NAMED)
            reason = complaints[0] if complaints else "Ivy gave no reason"
            raise PrerequisiteMissing(
                f"{len(absent)} of {len(jars)} jars could not be downloaded: {names} ({reason})",
                remedy="check the network, or name an Ivy settings file of a mirror that you can"
                f" reach in {SETTINGS_VARIABLE}, and run the command again",
                jars=tuple(jar.coordinates for jar in absent),
                complaints=tuple(complaints),
            )
        for jar in jars:
            _check(arrived / jar.filename, jar)
        for jar in jars:
            target = directory / jar.filename
            os.replace(arrived / jar.filename, target)
            _write_stamp(target, jar, work)


def _settings_arguments(env: Mapping[str, str]) -> list[str]:
    settings = env.get(SETTINGS_VARIABLE, "")
    if not settings:
        return []
    if not Path(settings).is_file():
        raise PrerequisiteMissing(
            f"{SETTINGS_VARIABLE} names {settings}, which is not a file",
            remedy=f"name an existing Ivy settings file, or unset {SETTINGS_VARIABLE}",
            settings=settings,
        )
    return ["-settings", settings]


@contextmanager
def _private_directory(directory: Path) -> Iterator[Path]:
    """A fresh directory on the cache's own file system, so that a rename is atomic."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=directory))
    except OSError as error:
        raise PrerequisiteMissing(
            f"the jar cache {directory} cannot be written: {error}",
            remedy="make it writable, or set XDG_CACHE_HOME to a directory that is",
            directory=str(directory),
        ) from error
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_ivy(command: Sequence[str], env: Mapping[str, str], say: Progress) -> list[str]:
    """Run Ivy to its end; return the lines in which it complains, causes before consequences."""
    causes: list[str] = []
    consequences: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", env=dict(env),
    ) as process:
        watchdog = threading.Timer(_FETCH_TIMEOUT, process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                download = _DOWNLOADING.match(line)
                if download:
                    say(f"downloading {download[1].rsplit('/', 1)[-1]}")
                elif _CAUSE.search(line):
                    causes.append(line.strip(" \t\r\n:"))
                elif _CONSEQUENCE.search(line):
                    consequences.append(line.strip(" \t\r\n:"))
        except BaseException:
            process.kill()
            raise
        finally:
            watchdog.cancel()
    return causes + consequences


def _check(path: Path, jar: LockedJar) -> None:
    """PrerequisiteMissing unless the downloaded file is the locked one."""
    size = path.stat().st_size
    digest = _digest(path)
    if size != jar.size or digest != jar.sha256:
        raise PrerequisiteMissing(
            f"the download of {jar.coordinates} is not the locked jar: {size} bytes with sha256"
            f" {digest}, where {jar.size} bytes with {jar.sha256} are locked; nothing was kept",
            remedy="run the command again; if it stays so, the mirror serves another file: ask"
            f" whoever runs it, or name another one by {SETTINGS_VARIABLE}",
            jar=jar.coordinates,
            sha256=digest,
        )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _is_verified(path: Path, jar: LockedJar) -> bool:
    """Whether the cached file is the locked one; hashed again only when the file was touched."""
    try:
        status = path.stat()
    except OSError:
        return False
    if status.st_size != jar.size:
        return False
    try:
        if _stamp_path(path).read_text(encoding="utf-8") == _stamp(status, jar):
            return True
    except OSError:
        pass
    if _digest(path) != jar.sha256:
        return False
    _write_stamp(path, jar, path.parent)
    return True


def _stamp_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified")


def _stamp(status: os.stat_result, jar: LockedJar) -> str:
    return f"{status.st_mtime_ns} {status.st_size} {jar.sha256}\n"


def _write_stamp(path: Path, jar: LockedJar, work: Path) -> None:
    """Remember that this very file was hashed; on a read-only cache it is hashed each time."""
    try:
        text = _stamp(path.stat(), jar)
        handle, temporary = tempfile.mkstemp(prefix=".stamp-", dir=work)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, _stamp_path(path))
    except OSError:
        return


def _silent(_line: str) -> None:
    """Progress that nobody asked for."""


def main(jars: Sequence[LockedJar] | None = None) -> int:
    """Fetch what is missing of ``jars`` (default: Spark's), progress on stderr.

    Returns the exit code: 0, or that of the error whose sentence it has printed.
    """

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        check_java()
        ensure_jars(say, jars=jars)
    except CatalogMigrateError as error:
        say(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
