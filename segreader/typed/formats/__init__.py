"""The formats of schemas: each module gives the type that a schema describes, and the steps that read its values."""
