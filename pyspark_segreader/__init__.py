"""Lets Spark find the data source by itself: it imports every top-level module named ``pyspark_*``.

Nothing here may raise: a module that does hides the data sources of all others.
``segreader.spark.register`` shows why ours does not load.
"""

from contextlib import suppress

with suppress(Exception):
    from segreader.spark.source import SegmentSource as DefaultSource  # noqa: F401
