"""Programs for ``spark-submit`` or plain Python: arguments, session, exit code; no parsing of bytes."""
