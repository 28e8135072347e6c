"""From a release to the changed world: read, plan, validate, prepare, commit, reconcile.

``plan`` reads what is in force and plans what is to come, ``rollback`` plans the way back to an
earlier serial, ``start`` does the rest under the lease. ``prepare`` builds beside the old state and
``copy_rows`` fills what it builds, ``commit`` turns a prepared migration into one compare-and-set,
``cleanup`` undoes attempts that died, ``reconcile`` compares the committed state with Spark's
catalog and repairs the difference. Hook, programs and verbs call these; Spark and Delta are reached
through the engine port only.
"""
