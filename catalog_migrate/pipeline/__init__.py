"""Read, plan, validate, prepare, commit, reconcile: the stages from a release to the changed world.

``plan`` reads what is in force and plans what is to come, ``rollback`` plans the way back to an
earlier serial, ``start`` does the rest under the lease, by the acts of
:mod:`catalog_migrate.reconciler`. Hook, programs and verbs call these; each stage takes values and
returns some.
"""
