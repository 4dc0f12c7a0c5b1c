"""Tables of Iceberg and Delta as targets of a backfill: data files that are there, added in one commit each.

The table says where it ends, so a ledger that is lost loses nothing.
"""
