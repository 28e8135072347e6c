"""Three small releases of a shop, as a team would have them."""

from __future__ import annotations

from pathlib import Path

import pytest

RELEASES = {
    "1.0": """
        CREATE TABLE {schema}.orders (id BIGINT NOT NULL, remark STRING, qty INT);
        CREATE TABLE {schema}.customers (id BIGINT, name STRING);
        CREATE VIEW {schema}.big (id BIGINT, qty INT)
          AS SELECT id, qty FROM {schema}.orders WHERE qty > 1;
    """,
    "1.1": """
        CREATE TABLE {schema}.orders (id BIGINT NOT NULL, note STRING RENAMED FROM (remark),
          qty INT, day DATE);
        CREATE TABLE {schema}.customers (id BIGINT, name STRING);
        CREATE VIEW {schema}.big (id BIGINT, qty INT)
          AS SELECT id, qty FROM {schema}.orders WHERE qty > 1;
    """,
    "2.0": """
        CREATE TABLE {schema}.orders (id BIGINT NOT NULL, note STRING RENAMED FROM (remark),
          qty BIGINT USING CAST(qty AS BIGINT), day DATE) PARTITIONED BY (day);
        CREATE TABLE {schema}.customers (id BIGINT, name STRING) COMMENT 'who buys';
        CREATE VIEW {schema}.big (id BIGINT, qty BIGINT)
          AS SELECT id, qty FROM {schema}.orders WHERE qty > 10;
        CREATE VIEW {schema}.names (name STRING) AS SELECT name FROM {schema}.customers;
    """,
}


def write_releases(directory: Path, schema: str) -> list[Path]:
    """The three as directories of SQL, oldest first."""
    paths = []
    for name, text in RELEASES.items():
        path = directory / name
        path.mkdir(parents=True)
        (path / "release.toml").write_text(f'name = "{name}"\n')
        (path / "shop.sql").write_text(text.format(schema=schema))
        paths.append(path)
    return paths


@pytest.fixture
def shop(tmp_path: Path, schema_name: str) -> list[Path]:
    """The three releases in a schema of the test's own."""
    return write_releases(tmp_path / "releases", schema_name)
