"""Layers, origins, and everything that is wrong reported at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from catalog_migrate.api.configured import spark_conf
from catalog_migrate.config import DOCUMENTED, KEYS, load
from catalog_migrate.errors import InvalidConfiguration, UsageError
from catalog_migrate.policy import Rule


def markdown_table() -> str:
    """The documentation of the keys as a markdown table."""
    lines = [
        "| Key | Type | Default | Environment | Flag | Meaning |",
        "|---|---|---|---|---|---|",
    ]
    for key in DOCUMENTED:
        kind = " or ".join(f"`{choice}`" for choice in key.choices) or key.type
        default = "not set" if key.default is None else f"`{key.default}`"
        flag = f"`{key.flag}`" if key.flag else ""
        lines.append(f"| `{key.path}` | {kind} | {default} | `{key.env}` | {flag} | {key.about} |")
    return "\n".join(lines) + "\n"


def test_defaults_hold_without_a_file(tmp_path: Path) -> None:
    """Every key has its default and says so."""
    settings = load(tmp_path, env={})
    assert [settings.settings[key.path].value for key in KEYS] == [key.default for key in KEYS]
    assert {setting.origin for setting in settings.settings.values()} == {"default"}
    assert settings.file is None


def test_each_layer_stands_above_the_one_before(tmp_path: Path) -> None:
    """A flag beats the environment, which beats the file, which beats the default."""
    file = tmp_path / "catalog_migrate.toml"
    file.write_text('[catalog]\nuri = "a"\n[spark]\nthreads = 2\n[output]\nwidth = 80\n')
    settings = load(
        tmp_path,
        env={"CATALOG_MIGRATE__SPARK__THREADS": "6", "CATALOG_MIGRATE__CATALOG__URI": "b"},
        flags={"catalog.uri": "c", "release.path": None},
    )
    assert settings.settings["output.width"].value == 80
    assert settings.settings["output.width"].origin == str(file)
    assert settings.settings["spark.threads"].value == 6
    assert settings.settings["spark.threads"].origin == "CATALOG_MIGRATE__SPARK__THREADS"
    assert settings.text("catalog.uri") == str(tmp_path / "c")
    assert settings.settings["catalog.uri"].origin == "flag --catalog"
    assert settings.text("release.path") is None


def test_a_file_upwards_is_found_and_its_paths_start_at_its_directory(tmp_path: Path) -> None:
    """Started in a sub-directory, the paths of the file above do not move."""
    (tmp_path / "catalog_migrate.toml").write_text('[release]\npath = "release"\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert load(below, env={}).text("release.path") == str(tmp_path / "release")


def test_pyproject_serves_when_there_is_no_file_of_our_own(tmp_path: Path) -> None:
    """[tool.catalog-migrate] is read; catalog_migrate.toml beside it would win."""
    (tmp_path / "pyproject.toml").write_text('[tool.catalog-migrate.release]\nname = "16"\n')
    assert load(tmp_path, env={}).text("release.name") == "16"
    (tmp_path / "catalog_migrate.toml").write_text('[release]\nname = "17"\n')
    assert load(tmp_path, env={}).text("release.name") == "17"


def test_an_address_is_left_as_it_is(tmp_path: Path) -> None:
    """A catalog URI with a scheme is not a path."""
    assert load(tmp_path, env={}, flags={"catalog.uri": "s3://b/c"}).text("catalog.uri") == (
        "s3://b/c"
    )


def test_all_problems_come_at_once_with_suggestions(tmp_path: Path) -> None:
    """Unknown keys in the file and the environment and unfit values are one error, exit 78."""
    file = tmp_path / "catalog_migrate.toml"
    file.write_text('loose = 1\n[catalog]\nurl = "a"\n[spark]\nthreads = "many"\n')
    with pytest.raises(InvalidConfiguration) as caught:
        load(tmp_path, env={"CATALOG_MIGRATE__SPARK__THREAD": "1"})
    assert caught.value.exit_code == 78
    assert [problem.message for problem in caught.value.problems] == [
        "loose is not a key",
        "catalog.url is not a key",
        "spark.threads is 'many', which is not a whole number of at least 1",
        "CATALOG_MIGRATE__SPARK__THREAD is not a key",
    ]
    assert [problem.remedy for problem in caught.value.problems[1:]] == [
        "did you mean catalog.uri?",
        "write a whole number of at least 1",
        "did you mean CATALOG_MIGRATE__SPARK__THREADS?",
    ]
    assert caught.value.problems[0].file == str(file)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spark.threads", 0), ("spark.threads", True), ("spark.threads", 1.5),
        ("bootstrap.timeout", -1), ("bootstrap.timeout", "soon"), ("output.color", "green"),
        ("catalog.uri", ""), ("output.width", 10),
    ],
)
def test_a_value_that_does_not_fit_is_refused(path: str, value: object, tmp_path: Path) -> None:
    """Wrong types, numbers below the least and words outside the choices are problems."""
    with pytest.raises(InvalidConfiguration, match=path):
        load(tmp_path, env={}, flags={path: value})  # type: ignore[dict-item]


def test_a_file_that_is_not_toml_is_told_with_its_place(tmp_path: Path) -> None:
    """A syntax error names the file and the line."""
    (tmp_path / "catalog_migrate.toml").write_text("[catalog\n")
    with pytest.raises(InvalidConfiguration, match=r"catalog_migrate\.toml is not TOML.*line 1"):
        load(tmp_path, env={})


def test_settings_of_spark_are_handed_through(tmp_path: Path) -> None:
    """From the file, also as TOML nests them, from the variable's lines, from flags."""
    (tmp_path / "catalog_migrate.toml").write_text(
        '[spark_conf]\nspark.master = "spark://a:7077"\nspark.sql.shuffle.partitions = 8\n'
        '"spark.hadoop.fs.s3a.secret.key" = "env:KEY"\n'
    )
    found = load(
        tmp_path, env={"CATALOG_MIGRATE__SPARK_CONF": "spark.master=spark://b:7077\nspark.x=a=b\n"},
        flags={"spark_conf.spark.y": "z"},
    ).spark_conf
    assert {name: setting.value for name, setting in found.items()} == {
        "spark.master": "spark://b:7077", "spark.sql.shuffle.partitions": "8", "spark.x": "a=b",
        "spark.hadoop.fs.s3a.secret.key": "env:KEY", "spark.y": "z",
    }
    assert found["spark.master"].origin == "CATALOG_MIGRATE__SPARK_CONF"
    assert found["spark.y"].origin == "flag --conf"


def test_a_secret_of_spark_is_a_reference(tmp_path: Path) -> None:
    """One that is written down is refused, and not told; so is a line without a value."""
    (tmp_path / "catalog_migrate.toml").write_text(
        '[spark_conf]\n"spark.hadoop.fs.s3a.secret.key" = "geheim"\n'
    )
    with pytest.raises(InvalidConfiguration) as caught:
        load(tmp_path, env={"CATALOG_MIGRATE__SPARK_CONF": "spark.master"})
    assert [problem.message for problem in caught.value.problems] == [
        "spark_conf.spark.hadoop.fs.s3a.secret.key is a secret: its value is not written down",
        "CATALOG_MIGRATE__SPARK_CONF is not a text or a number",
    ]
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("name", [
    "spark.hadoop.fs.azure.sas.fixed.token.a", "spark.hadoop.fs.azure.sas.c.a.example",
    "spark.hadoop.fs.s3a.encryption.key", "spark.hadoop.a.private.key", "spark.hadoop.a.credential",
])
def test_what_is_a_secret_of_spark(tmp_path: Path, name: str) -> None:
    """By its name; a class that provides credentials is none."""
    with pytest.raises(InvalidConfiguration, match="is a secret"):
        load(tmp_path, env={}, flags={f"spark_conf.{name}": "geheim"})
    provider = {"spark_conf.spark.hadoop.fs.s3a.aws.credentials.provider": "a.b.Provider"}
    assert load(tmp_path, env={}, flags=provider).spark_conf


@pytest.mark.parametrize("value", [
    "jdbc:postgresql://host/hive?user=a&password=geheim", "https://a:geheim@proxy.example:3128",
])
def test_a_login_in_an_address_is_refused(tmp_path: Path, value: str) -> None:
    """Whatever the setting is called, and it is not told."""
    name = "spark.hadoop.javax.jdo.option.ConnectionURL"
    with pytest.raises(InvalidConfiguration, match="has a password in it") as caught:
        load(tmp_path, env={}, flags={f"spark_conf.{name}": value})
    assert "geheim" not in str(caught.value)


def test_a_secret_of_spark_is_read_when_its_session_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of Hadoop's is handed to the JVM when it runs; any other would be on its command line."""
    monkeypatch.setenv("KEY", "geheim")
    conf = {
        "spark_conf.spark.master": "local[1]",
        "spark_conf.spark.hadoop.fs.s3a.secret.key": "env:KEY",
    }
    assert spark_conf(load(tmp_path, env={}, flags=conf)) == (
        {"spark.master": "local[1]"}, {"fs.s3a.secret.key": "geheim"}
    )
    conf["spark_conf.spark.authenticate.secret"] = "env:KEY"
    with pytest.raises(UsageError, match="command line of Spark's JVM"):
        spark_conf(load(tmp_path, env={}, flags=conf))


def test_the_documentation_is_the_table() -> None:
    """docs/configuration.md ends with the table of keys as the code has it."""
    docs = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert docs.read_text(encoding="utf-8").endswith("\n\n" + markdown_table())


def test_rules_of_the_policy_come_in_order_from_file_or_environment(tmp_path: Path) -> None:
    """[[policy]] is a list; the variable holds the whole list in one line and stands above it."""
    file = tmp_path / "catalog_migrate.toml"
    file.write_text(
        '[[policy]]\nrisk = "drop_table"\nname = "staging.*"\naction = "allow"\n'
        '[[policy]]\nrisk = "any"\naction = "approve"\n'
    )
    assert load(tmp_path, env={}).policy == (
        Rule("drop_table", "allow", "staging.*"), Rule("any", "approve"),
    )
    assert load(tmp_path, env={}).policy[1].origin == f"{file}, policy 2"
    one = {"CATALOG_MIGRATE__POLICY": '[{risk = "any", action = "refuse"}]'}
    assert load(tmp_path, env=one).policy == (Rule("any", "refuse"),)


@pytest.mark.parametrize(
    ("text", "variable"),
    [("", "refuse everything"), ("policy = 3\n", None), ('[policy]\nrisk = "any"\n', None)],
)
def test_a_policy_that_is_no_list_is_refused(
    text: str, variable: str | None, tmp_path: Path
) -> None:
    """A section, a number or a sentence under the name of the list is an error, never no rules."""
    (tmp_path / "catalog_migrate.toml").write_text(text)
    env = {} if variable is None else {"CATALOG_MIGRATE__POLICY": variable}
    with pytest.raises(InvalidConfiguration, match="policy is not a list of rules"):
        load(tmp_path, env=env)


@pytest.mark.parametrize("section", sorted({key.section for key in KEYS}))
def test_no_suggestion_is_the_word_itself(section: str, tmp_path: Path) -> None:
    """``catalog = 1`` is told to be a section; it is not asked whether catalog was meant."""
    (tmp_path / "catalog_migrate.toml").write_text(f"{section} = 1\n")
    with pytest.raises(InvalidConfiguration) as caught:
        load(tmp_path, env={})
    (problem,) = caught.value.problems
    assert problem.message == f"{section} is a section, not a key"
    assert "did you mean" not in str(problem)


@pytest.mark.parametrize("kind", ["directory", "pipe", "loop", "dangling link"])
def test_what_is_there_and_is_no_file_is_an_error(tmp_path: Path, kind: str) -> None:
    """Defaults in place of a configuration that somebody meant would be a surprise."""
    file = tmp_path / "catalog_migrate.toml"
    if kind == "directory":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(file if kind == "loop" else tmp_path / "nowhere")
    with pytest.raises(InvalidConfiguration, match="cannot be read") as caught:
        load(tmp_path, env={})
    assert str(file) in caught.value.message
    assert caught.value.exit_code == 78


def test_values_nested_too_deep_to_read(tmp_path: Path) -> None:
    """A file that no parser can follow to its end is one that cannot be read."""
    (tmp_path / "catalog_migrate.toml").write_text("[release]\npath = " + "[" * 100_000)
    with pytest.raises(InvalidConfiguration, match="is not TOML"):
        load(tmp_path, env={})
