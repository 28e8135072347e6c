"""Decides what a migration is: diff, reach, contents, orders, plan. Pure: data in, data out."""
