"""The backfill: records of a topic as Parquet files, exactly once, however often the job is killed.

A plan is written once; each split has one ``done`` entry that one of its writers puts there; a manifest follows when
the entries prove that nothing is missing and nothing is there twice.
"""
