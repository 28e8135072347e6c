"""What connections and sources of files take."""
from __future__ import annotations

from collections.abc import Mapping

from catalog_migrate.connectors.common_options import DECODING_OPTIONS, TRIGGER
from catalog_migrate.connectors.sections import Reserved, Section
from catalog_migrate.connectors.values import Option
from catalog_migrate.model.objects import OptionValue

_NOT_OF_LINES = frozenset({"files.multiline", "files.encoding", "files.charset"})


def options_not_of_lines(options: Mapping[str, OptionValue]) -> list[str]:
    """Return the options of files by which a record of JSON is no line of UTF-8."""
    return sorted(
        name for name, value in options.items()
        if name.lower() in _NOT_OF_LINES and str(value).lower() not in ("false", "utf-8", "utf8")
    )


CONNECTION = Section(
    options=(
        Option(
            "PATH", "path", "The directory, from the root.", "/data/landing", required=True,
            alterable=False,
            fixed_because="files are remembered by path, and would all be read again; "
            "create another connection and source", moves=True,
        ),
        Option(
            "FORMAT", "choice", "How the files are written.", "csv", default="json",
            choices=("json", "csv", "parquet", "text"),
        ),
    ),
    open_prefix="files.",
    open_help="Any option of Spark's reader of that format, e.g. `files.header`.",
    reserved=(
        Reserved(("path", "paths"), "PATH"),
        Reserved(("format",), "FORMAT"),
        Reserved(("pathglobfilter",), "PATTERN of the source"),
        Reserved(("maxfilespertrigger",), "MAX FILES PER TRIGGER of the source"),
        Reserved(
            ("cleansource", "sourcearchivedir", "latestfirst", "filenameonly", "maxfileage",
             "maxbytespertrigger", "maxcachedfiles", "discardcachedinputratio",
             "recursivefilelookup", "modifiedbefore", "modifiedafter",
             "ignoremissingfiles", "ignorecorruptfiles", "columnnameofcorruptrecord"),
            "nothing: the product decides which files and rows count",
        ),
        Reserved(
            ("*password*", "*secret*", "*token*", "*credential*"),
            "nothing: it carries a secret, and is not supported", secrets=True,
        ),
    ),
)  # fmt: skip

SOURCE = Section(
    options=(
        Option(
            "PATH", "path", "A directory below the connection's.", "orders", alterable=False,
            fixed_because="files are remembered by path; create another source", moves=True,
        ),
        Option(
            "PATTERN", "text", "Which file names count (*, ?, [a-z], {a,b}).", "*.json",
            alterable=False,
            fixed_because="files passed over until now would be read late; "
            "create another source", moves=True,
        ),
        *DECODING_OPTIONS,
    ),
    settings=(
        TRIGGER,
        Option(
            "MAX FILES PER TRIGGER", "integer", "At most so many files a batch.", "100",
            minimum=1,
        ),
    ),
    format_from="FORMAT",
    formats=("JSON", "CSV", "PARQUET", "TEXT"),
)  # fmt: skip
