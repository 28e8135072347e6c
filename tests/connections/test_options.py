"""Checking, changing and inheriting options."""

from __future__ import annotations

import pytest

from catalog_migrate.connectors.options import (
    alterable,
    apply_actions,
    check,
    diff,
    effective,
    partition,
)
from catalog_migrate.errors import InvalidOptions
from catalog_migrate.model.objects import OptionValue, SecretRef
from catalog_migrate.sql.statements import DropOptions, ResetOptions, SetOptions

PASSWORD = SecretRef("s")
SASL: dict[str, OptionValue] = {
    "BROKER": "a:1",
    "SECURITY PROTOCOL": "SASL_PLAINTEXT",
    "SASL MECHANISMS": "SCRAM-SHA-512",
    "SASL USERNAME": "u",
    "SASL PASSWORD": PASSWORD,
}


def codes(error: InvalidOptions) -> list[str]:
    """The codes of an error's problems, in order."""
    return [problem.code for problem in error.problems]


class TestCheck:
    """A whole definition, canonical or refused."""

    def test_canonical_names_values_and_order(self) -> None:
        """Names in any spelling become the tables', in the tables' order, values canonical."""
        options, settings = check(
            "KAFKA",
            "source",
            {"start": "Latest", "Topic": " t "},
            settings={"max_offsets_per_trigger": "010", "Trigger": "1000 ms"},
        )
        assert list(options.items()) == [("TOPIC", "t"), ("START", "latest")]
        assert list(settings.items()) == [
            ("TRIGGER", "1 second"), ("MAX OFFSETS PER TRIGGER", "10")
        ]

    def test_canonical_is_a_fixed_point(self) -> None:
        """Checking what came out of a check changes nothing."""
        once = check("KAFKA", "connection", {**SASL, "KAFKA.Linger.ms": "5"})[0]
        assert check("KAFKA", "connection", once)[0] == once
        assert once["kafka.linger.ms"] == "5"

    def test_all_problems_at_once(self) -> None:
        """One error lists every problem, each with what to write."""
        with pytest.raises(InvalidOptions) as caught:
            check(
                "POSTGRES",
                "connection",
                {"HOTS": "h", "PORT": "x", "PASSWORD": "MARKER", "DATABASE": PASSWORD},
                where="connection s.d",
            )
        assert codes(caught.value) == ["CM0711", "CM0716", "CM0714", "CM0715", "CM0712", "CM0712"]
        assert str(caught.value) == (
            "CM0710: connection s.d: the options do not make a POSTGRES connection\n"
            "CM0711 there is no option HOTS\n"
            "    remedy: did you mean HOST or PORT?\n"
            "CM0716 option PORT: a whole number is expected, not 'x'\n"
            "    remedy: for example PORT '5433'\n"
            "CM0714 option PASSWORD takes a secret, not a text (the text is not shown)\n"
            "    remedy: CREATE SECRET pg_password AS 'env:NAME', then write PASSWORD SECRET "
            "pg_password\n"
            "CM0715 option DATABASE takes no secret\n"
            "    remedy: write DATABASE 'shop'\n"
            "CM0712 option HOST is required\n"
            "    remedy: write HOST 'db.example.com'\n"
            "CM0712 option USER is required\n"
            "    remedy: write USER 'app'"
        )

    @pytest.mark.parametrize(
        ("name", "instead"),
        [
            ("kafka.sasl.jaas.config", "SASL USERNAME and SASL PASSWORD"),
            ("kafka.bootstrap.servers", "BROKER"),
            ("Kafka.Security.Protocol", "SECURITY PROTOCOL"),
            ("kafka.ssl.truststore.location", "SSL CERTIFICATE AUTHORITY"),
            ("kafka.ssl.key.password", "SSL CERTIFICATE, SSL KEY and SSL KEY PASSWORD"),
            ("kafka.group.id", "nothing: the product sets it itself"),
        ],
    )
    def test_reserved_client_options(self, name: str, instead: str) -> None:
        """A client option that a declared one stands for is refused without showing its value."""
        with pytest.raises(InvalidOptions) as caught:
            check("KAFKA", "connection", {"BROKER": "a:1", name: "MARKER"})
        assert codes(caught.value) == ["CM0717"]
        assert caught.value.problems[0].remedy == f"use {instead}"
        assert "MARKER" not in str(caught.value)

    @pytest.mark.parametrize(
        "name",
        ["kafka.sasl.oauthbearer.token.endpoint.url", "kafka.my.password", "kafka.config.providers",
         "kafka.sasl.login.callback.handler.class", "kafka.aws.secret.key"],
    )  # fmt: skip
    def test_client_options_that_carry_secrets_or_code(self, name: str) -> None:
        """What would carry a secret in plain text, or load code, is refused."""
        with pytest.raises(InvalidOptions) as caught:
            check("KAFKA", "connection", {"BROKER": "a:1", name: "MARKER"})
        assert codes(caught.value) == ["CM0717"]

    def test_secret_under_open_prefix(self) -> None:
        """Open options are plain text."""
        with pytest.raises(InvalidOptions, match="takes no secret"):
            check("KAFKA", "connection", {"BROKER": "a:1", "kafka.client.id": PASSWORD})

    def test_sasl_needs_all_of_it(self) -> None:
        """A SASL protocol asks for mechanism, user and password."""
        with pytest.raises(InvalidOptions) as caught:
            check("KAFKA", "connection", {"BROKER": "a:1", "SECURITY PROTOCOL": "SASL_SSL"})
        assert [problem.message for problem in caught.value.problems] == [
            f"option {name} is required when SECURITY PROTOCOL is SASL_PLAINTEXT or SASL_SSL"
            for name in ("SASL MECHANISMS", "SASL USERNAME", "SASL PASSWORD")
        ]

    def test_sasl_without_its_protocol(self) -> None:
        """SASL options with the default protocol are refused, not silently left out."""
        with pytest.raises(InvalidOptions) as caught:
            check("KAFKA", "connection", {"BROKER": "a:1", "SASL USERNAME": "u"})
        assert [problem.message for problem in caught.value.problems] == [
            "option SASL USERNAME does not go together with SECURITY PROTOCOL PLAINTEXT or SSL"
        ]

    def test_broken_value_causes_one_problem(self) -> None:
        """A misspelt protocol is one problem, not four."""
        with pytest.raises(InvalidOptions) as caught:
            check("KAFKA", "connection", {**SASL, "SECURITY PROTOCOL": "SASL"})
        assert codes(caught.value) == ["CM0716"]

    def test_misplaced(self) -> None:
        """A setting among the options is told where it belongs, and the other way round."""
        with pytest.raises(InvalidOptions) as caught:
            check("KAFKA", "sink", {"TOPIC": "t", "trigger": "1 s"}, settings={"TOPIC": "t"})
        assert codes(caught.value) == ["CM0711", "CM0719"]
        assert caught.value.problems[0].remedy == "write it after WITH"

    def test_same_name_in_two_spellings(self) -> None:
        """One option in two spellings is given twice."""
        with pytest.raises(InvalidOptions, match="SASL USERNAME is given twice"):
            check("KAFKA", "connection", {**SASL, "sasl_username": "v"})

    def test_pem_of_doubtful_secrecy_is_not_shown(self) -> None:
        """A wrong value of an option that may be a secret is not repeated."""
        with pytest.raises(InvalidOptions) as caught:
            check(
                "KAFKA", "connection",
                {"BROKER": "u:MARKER@h:1", "SECURITY PROTOCOL": "SSL",
                 "SSL CERTIFICATE AUTHORITY": "MARKER"},
            )  # fmt: skip
        assert codes(caught.value) == ["CM0716", "CM0716"]
        assert "MARKER" not in str(caught.value)

    @pytest.mark.parametrize(
        ("connector", "section", "why"),
        [
            ("FILES", "sink", "FILES has no sinks: files are read only"),
            ("ORACLE", "connection", "ORACLE is no type of connection"),
        ],
    )
    def test_what_is_not_there(self, connector: str, section: str, why: str) -> None:
        """Types and sections that do not exist are refused with the reason."""
        with pytest.raises(InvalidOptions, match=why):
            check(connector, section, {})  # type: ignore[arg-type]


class TestInherited:
    """A connection that uses another."""

    BASE: dict[str, OptionValue] = SASL

    def test_sum_is_checked_and_own_part_returned(self) -> None:
        """Required options may come from the base; only what is written here comes back."""
        own = {"BROKER": "b:2"}
        assert check("KAFKA", "connection", own, inherited=self.BASE)[0] == own

    def test_conflict_with_the_base_names_it(self) -> None:
        """An option of the base that does not fit says where it comes from."""
        with pytest.raises(InvalidOptions) as caught:
            check("KAFKA", "connection", {"SECURITY PROTOCOL": "SSL"}, inherited=self.BASE)
        assert codes(caught.value) == ["CM0713"] * 3
        assert "(SASL MECHANISMS from the connection used)" in caught.value.problems[0].message

    def test_bare_names_are_set_to_something_unknown(self) -> None:
        """Names without values satisfy what is required, and exclude nothing."""
        own = {"SASL USERNAME": "v"}
        assert check("KAFKA", "connection", own, inherited=frozenset(self.BASE))[0] == own


class TestAlter:
    """SET, DROP and RESET."""

    def test_missing_after_drop(self) -> None:
        """Dropping what is required is refused, and the message says that the ALTER did it."""
        after = apply_actions(SASL, [DropOptions(("broker",))], connector="KAFKA")
        with pytest.raises(InvalidOptions) as caught:
            check("KAFKA", "connection", after, before=SASL, where="ALTER CONNECTION c")
        assert str(caught.value) == (
            "CM0710: ALTER CONNECTION c: the options do not make a KAFKA connection\n"
            "CM0712 option BROKER is required and would be taken away\n"
            "    remedy: leave it, or SET BROKER 'kafka-1.example.com:9092'"
        )

    def test_several_actions_at_once(self) -> None:
        """All actions together lead from one valid definition to another."""
        actions = [
            SetOptions({"security protocol": "PLAINTEXT", "BROKER": "b:2"}),
            DropOptions(("SASL MECHANISMS", "SASL USERNAME")),
            ResetOptions(("SASL PASSWORD",)),
        ]
        after = apply_actions(SASL, actions, connector="KAFKA")
        assert check("KAFKA", "connection", after)[0] == {
            "BROKER": "b:2", "SECURITY PROTOCOL": "PLAINTEXT"
        }

    @pytest.mark.parametrize(
        ("actions", "message"),
        [
            ([SetOptions({"BROKER": "a:1"}), SetOptions({"Broker": "b:1"})],
             "option Broker stands twice"),
            ([SetOptions({"BROKER": "a:1"}), DropOptions(("BROKER",))],
             "option BROKER stands in SET and DROP"),
            ([DropOptions(("PORT", "port"))], "option port stands twice"),
            ([DropOptions(("PORT",)), ResetOptions(("PORT",))],
             "option PORT stands in DROP and RESET"),
        ],
    )  # fmt: skip
    def test_touched_twice(
        self, actions: list[SetOptions | DropOptions | ResetOptions], message: str
    ) -> None:
        """An option twice, or in two kinds of action, is an error, whatever its spelling."""
        with pytest.raises(InvalidOptions) as caught:
            apply_actions({"BROKER": "x:1"}, actions)
        assert [problem.message for problem in caught.value.problems] == [message]
        assert codes(caught.value) == ["CM0719"]

    def test_dropping_what_is_not_set(self) -> None:
        """DROP and RESET of an option that has no value change nothing."""
        assert apply_actions(SASL, [ResetOptions(("SSL KEY",))], connector="KAFKA") == SASL

    def test_unknown_names(self) -> None:
        """Names that the type does not have are refused together."""
        actions = [SetOptions({"PORTT": "1"}), DropOptions(("HOTS",))]
        with pytest.raises(InvalidOptions) as caught:
            apply_actions({}, actions, connector="POSTGRES")
        assert [problem.remedy for problem in caught.value.problems] == [
            "did you mean PORT?", "did you mean HOST or PORT?"
        ]

    def test_base_passes_as_an_option(self) -> None:
        """USING CONNECTION goes through SET and DROP like an option."""
        after = apply_actions(SASL, [SetOptions({"USING CONNECTION": "b"})], connector="KAFKA")
        assert after["USING CONNECTION"] == "b"
        assert apply_actions(after, [DropOptions(("USING CONNECTION",))], connector="KAFKA") == SASL

    def test_fixed_and_unknown(self) -> None:
        """Every option that cannot be altered is listed."""
        with pytest.raises(InvalidOptions) as caught:
            alterable("KAFKA", "source", ["TOPIC", "START", "TRIGGER", "NONE"], where="source s")
        assert codes(caught.value) == ["CM0718", "CM0718", "CM0711"]
        alterable("KAFKA", "connection", [*SASL, "kafka.client.id"])


class TestSmall:
    """The rest."""

    def test_diff(self) -> None:
        """Names that differ, in order; equal values do not count."""
        assert diff({"A": "1", "B": "2", "S": PASSWORD}, {"B": "3", "C": "4", "S": PASSWORD}) == (
            "A", "B", "C"
        )

    def test_effective(self) -> None:
        """Defaults fill in what is not set."""
        options = effective("POSTGRES", {"HOST": "h", "PORT": "1"})
        assert options == {"HOST": "h", "PORT": "1", "SSL MODE": "prefer"}

    def test_partition(self) -> None:
        """What ALTER SOURCE sets is told apart into options and settings."""
        assert partition("KAFKA", "source", {"TOPIC": "t", "TRIGGER": "1 second"}) == (
            {"TOPIC": "t"}, {"TRIGGER": "1 second"}
        )
