"""The command line ``catalog-migrate``: one module a verb, imported when the verb is used."""
