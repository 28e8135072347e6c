"""The program: typed operations in one order, which the plan prints and the reconciler executes."""
