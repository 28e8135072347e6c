"""Packages of an extra that is not installed: each verb names the extra, none has a traceback."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from catalog_migrate.errors import missing_extra

ROOT = Path(__file__).parents[2]
ABSENT = ("pyspark", "delta", "py4j")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A directory with a release, and the environment of a Python that has no PySpark."""
    home = tmp_path_factory.mktemp("without")
    packages = home / "packages"
    packages.mkdir()
    spec = importlib.util.find_spec("click")
    assert spec is not None
    assert spec.origin is not None
    for place in Path(spec.origin).parents[1].iterdir():
        if not place.name.startswith(ABSENT) and place.suffix != ".pth":
            (packages / place.name).symlink_to(place)
    env = {**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"}
    done = run(home, env, "init", "shop")
    assert done.returncode == 0, done.stderr
    return home / "shop", env


def run(place: Path, env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    # -S: the environment's own packages stay out
    return subprocess.run(
        [sys.executable, "-S", "-m", "catalog_migrate.cli.main", *args], cwd=place, env=env,
        text=True, capture_output=True,
    )


@pytest.mark.parametrize(
    "args",
    ["apply --yes", "plan --bind", "check release --bind", "bootstrap", "doctor",
     "sql -c 'SELECT 1'"],
)  # fmt: skip
def test_a_verb_without_pyspark_names_the_extra(
    shop: tuple[Path, dict[str, str]], args: str
) -> None:
    """A typed error with the command that installs it."""
    place, env = shop
    done = run(place, env, *[each.strip("'") for each in args.split(" ", 2)])
    told = done.stdout + done.stderr
    assert done.returncode not in (0, None)
    assert "Traceback" not in told
    if args.startswith("sql"):  # there is no catalog yet, which is said first
        assert "CM0200" in told
    else:
        assert "PySpark is not installed in this Python environment" in told
        assert "remedy: pip install 'catalog_migrate[spark]'" in told


@pytest.mark.parametrize(
    ("package", "extra"),
    [("pyspark.sql", "spark"), ("pyarrow", "spark"), ("confluent_kafka.admin", "streams"),
     ("psycopg", "streams"), ("asyncssh", "tunnel"), ("obstore", "s3"), ("grpc", "connect"),
     ("opentelemetry.trace", "telemetry")],
)  # fmt: skip
def test_a_package_belongs_to_an_extra(package: str, extra: str) -> None:
    """What an import says becomes the extra that installs it."""
    error = missing_extra(ModuleNotFoundError(name=package))
    assert error is not None
    assert error.code == "CM0500"
    assert error.remedy == f"pip install 'catalog_migrate[{extra}]'"


def test_others_stay_what_they_are() -> None:
    """A module of ours that is missing is a defect, and so is anything else."""
    assert missing_extra(ModuleNotFoundError(name="catalog_migrate.nope")) is None
    assert missing_extra(ValueError("pyspark")) is None
