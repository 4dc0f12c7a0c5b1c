"""Schemas of keys and values: where they come from, for ``scan(…, value=…)`` and everything that reads topics."""
