"""Operations: the typed acts of a program (``steps``), their order, and how each is executed.

``order`` sorts the steps of a plan, ``operation`` has the base class of what acts and the one
executor, ``kinds`` the states that migrations, ALTERs and unsafe operations go through.
"""
