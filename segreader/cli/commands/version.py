"""``segreader version``: what runs here."""

from __future__ import annotations

import click

from segreader.cli.output import debug_option, output_option, write_json_rows
from segreader.cli.table import print_facts

_PACKAGES = ("pyarrow", "lz4", "zstandard", "cramjam", "isal", "crc32c", "fsspec", "msgspec", "pyspark")


@click.command(short_help="Print the version, and which kernel decodes.")
@output_option("table", "json", "ndjson")
@debug_option
def version(form: str) -> None:
    """Print the version, which kernel decodes, and the versions of its dependencies.

    The kernel is native (compiled) or reference (plain Python: the same records, many times slower). The native kernel
    decompresses the codecs that are listed without Python's lock; the others take more time.
    """
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from segreader import __version__
    from segreader.format import native_codecs
    from segreader.format.kernel import kernel_name

    kernel = kernel_name()
    facts: dict[str, str | None] = {
        "version": __version__,
        "kernel": kernel,
        "codecs": ", ".join(native_codecs.found()) if kernel == "native" else "",
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for package in _PACKAGES:
        try:
            facts[package] = installed(package)
        except PackageNotFoundError:
            facts[package] = None
    if form != "table":
        write_json_rows([facts], form)
        return
    print_facts(
        ("segreader" if name == "version" else name, value or ("none" if name == "codecs" else "not installed"))
        for name, value in facts.items()
    )
