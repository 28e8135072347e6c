"""Find the Java that Spark will start, and say what to do when it is absent or of a wrong version.

Spark 4 runs on Java 17 or 21. A runtime cannot come from a Python package (Spark's launcher wants
``jdk.incubator.vector``), so it stays a prerequisite of the machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from catalog_migrate.errors import PrerequisiteMissing

SUPPORTED = (17, 21)
REMEDY = (
    "install Java 17 or 21 (Debian and Ubuntu: apt-get install openjdk-17-jre-headless) and set"
    " JAVA_HOME to it, or put its java on the PATH"
)
_SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""With one compiler the JVM would reserve 48 MiB for code. Spark fills that in minutes, and from
then on code is swept out and compiled again; 240 MiB is what it reserves for two compilers."""
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?[^"]*"')
_TIMEOUT = 60.0


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
    if version not in SUPPORTED:
        raise PrerequisiteMissing(
            f"{executable} is Java {version}; Spark 4 needs Java 17 or 21", remedy=REMEDY,
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
            remedy=f"unset JAVA_HOME to use the java on the PATH, or {REMEDY}", java_home=home,
        )
    found = shutil.which("java", path=env.get("PATH", ""))
    if found is None:
        raise PrerequisiteMissing(
            "there is no Java: JAVA_HOME is not set and no java is on the PATH", remedy=REMEDY
        )
    return found


def java_version(executable: str) -> int:
    """Major version of a ``java`` program (8 for "1.8.0"); PrerequisiteMissing when it fails."""
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, errors="replace",
            timeout=_TIMEOUT, check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrerequisiteMissing(
            f"{executable} could not be run: {error}", remedy=REMEDY, executable=executable
        ) from error
    said = f"{answer.stderr}\n{answer.stdout}".strip()
    match = _VERSION.search(said)
    if match is None:
        first = said.splitlines()[0] if said else f"nothing, exit status {answer.returncode}"
        raise PrerequisiteMissing(
            f"{executable} -version does not tell a Java version; it said: {first}", remedy=REMEDY,
            executable=executable,
        )
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major
