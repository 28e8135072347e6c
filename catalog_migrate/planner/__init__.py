"""Decides what a migration is: diff, impact, contents, order, plan. Pure: data in, data out."""
