"""The broker's classes, kept parsed between its starts: half of what a start costs is reading them.

A broker that finds no archive writes one when it ends; the JVM itself checks that an archive is the
right one and does without it otherwise.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from catalog_migrate.engine.spark.jars import cache_directory


class ClassArchive:
    """The archive for one Java and one class path, in the user's cache.

    ``java`` is the Java program, ``classpath`` what it will run, ``scratch`` a directory for an
    archive that is being written.
    """

    def __init__(self, java: str, classpath: str, scratch: Path) -> None:
        digest = hashlib.sha256(classpath.encode())
        for path in (os.path.realpath(java), *classpath.split(":")):
            status = os.stat(path)
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
        self._path = cache_directory() / f"broker-{digest.hexdigest()[:16]}.jsa"
        self._fresh = scratch / "classes.jsa"

    def reading(self) -> list[str]:
        """Flags of a JVM that only uses the archive; none when there is none yet."""
        if self._path.is_file():
            return [f"-XX:SharedArchiveFile={self._path}", "-Xshare:auto"]
        return []

    def reading_or_writing(self) -> list[str]:
        """Flags of a JVM that uses the archive, or writes it when it ends by itself."""
        return self.reading() or [f"-XX:ArchiveClassesAtExit={self._fresh}"]

    def keep(self) -> None:
        """Put an archive that an ended JVM has written into the cache, if it has."""
        try:
            if self._path.is_file():
                self._fresh.unlink(missing_ok=True)
                return
            arriving = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            arriving.write_bytes(self._fresh.read_bytes())
            self._fresh.unlink()
            os.replace(arriving, self._path)
        except OSError:
            return  # the next broker tries again
