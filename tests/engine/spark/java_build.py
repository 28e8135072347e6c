"""Builds the jar of our Java, the same bytes each time: ``make java``.

It lies in the package, because whoever has only a JRE cannot compile it. The JDK that built it
stands in its manifest; classes are stored, not deflated, so that no zlib has a say.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from catalog_migrate.engine.spark.jars import ensure_jars, locate_pyspark
from catalog_migrate.engine.spark.object_stores.settings import own_jar, s3_jars

JAR = Path(own_jar())
SOURCES = JAR.parent / "catalogmigrate"
RELEASE = "17"
_MANIFEST = "META-INF/MANIFEST.MF"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def jdk() -> str | None:
    """The version of the ``javac`` on the PATH, None when there is none."""
    if shutil.which("javac") is None:
        return None
    said = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[-1]


def recorded_jdk() -> str:
    """The version of the JDK that built the jar in the package."""
    manifest = zipfile.ZipFile(JAR).read(_MANIFEST).decode()
    found = re.search(r"^Build-Jdk: (\S+)", manifest, re.M)
    assert found is not None
    return found[1]


def built() -> bytes:
    """The jar as the sources give it now."""
    jars = [str(locate_pyspark() / "jars" / "*"), *ensure_jars(), *ensure_jars(jars=s3_jars())]
    manifest = f"Manifest-Version: 1.0\r\nBuild-Jdk: {jdk()}\r\n\r\n"
    with tempfile.TemporaryDirectory() as directory:
        command = [
            "javac", "--release", RELEASE, "-g:source,lines", "-Xlint:-options", "-proc:none",
            "-encoding", "UTF-8", "-cp", ":".join(jars), "-d", directory,
            *sorted(map(str, SOURCES.glob("*.java"))),
        ]
        subprocess.run(command, check=True)
        classes = {
            path.relative_to(directory).as_posix(): path.read_bytes()
            for path in sorted(Path(directory).rglob("*.class"))
        }
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as jar:
        for name, data in {_MANIFEST: manifest.encode(), **classes}.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            jar.writestr(entry, data)
    return target.getvalue()


def main() -> int:
    JAR.write_bytes(built())
    print(f"{JAR}, by JDK {jdk()}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
