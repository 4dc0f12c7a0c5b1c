"""Topics as tables: what engines ask a pyarrow ``Dataset`` for, columns and filters, answered with as little reading as
that needs. DuckDB and Polars have their doors in ``segreader.duckdb`` and ``segreader.polars``.
"""
