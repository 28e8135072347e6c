"""The command line ``catalog-migrate``: modules of verbs, imported when a verb is used."""
