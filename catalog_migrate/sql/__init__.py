"""The SQL dialect of a release: tokens, what a query reads, CREATE statements and their printer.

Four modules: ``tokens`` (lexer with positions), ``references`` (which relations, functions and
types a text names, and rewriting them), ``statements`` (recursive descent over the tokens of
CREATE statements), ``printer`` (the way back). Pure: no I/O, no Spark, no parser library, so that
a definition hash does not change with a library's version.
"""
