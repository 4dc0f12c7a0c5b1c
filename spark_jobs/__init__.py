"""Programs for ``spark-submit`` or plain Python: arguments, session, exit code. They read no bytes themselves."""
