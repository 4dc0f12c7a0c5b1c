"""Values with schemas: what turns the bytes of keys and values into typed Arrow columns.

``segreader.schemas`` is the door for users. Here are the schemas of each format (``formats``), what they compile to
(``ops``), and what executes that (``_values.pyx``, and ``reference`` in plain Python).
"""
