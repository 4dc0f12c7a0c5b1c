"""Builds the optional parts, the native extensions; everything else about the package is in pyproject.toml.

Environment:
    SEGREADER_REQUIRE_KERNEL=1   an extension that cannot be built is an error (tests, benchmarks); otherwise
                                 the package installs without it and runs on its plain-Python twin
    SEGREADER_SANITIZE=address   build them for AddressSanitizer (``make test-asan``)
"""

import os
from pathlib import Path

from setuptools import Extension, setup

SOURCES = sorted(source for part in ("format", "typed") for source in Path("segreader", part).glob("_*.pyx"))


def extensions() -> list[Extension]:
    """The extension modules, or nothing where it can do without."""
    required = os.environ.get("SEGREADER_REQUIRE_KERNEL") == "1"
    sanitize = os.environ.get("SEGREADER_SANITIZE") == "address"
    try:
        from Cython.Build import cythonize
    except ImportError:
        if required:
            raise
        return []
    flags = ["-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer"] if sanitize else ["-O3"]
    wanted = [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            depends=[str(header) for header in source.parent.glob("*.h")],
            include_dirs=[str(source.parent)],
            extra_compile_args=flags,
            extra_link_args=["-fsanitize=address"] if sanitize else [],
        )
        for source in SOURCES
    ]
    built: list[Extension] = cythonize(wanted, build_dir="build/cython", language_level=3)
    for extension in built:  # cythonize makes new ones, without this field
        extension.optional = not required
    return built


setup(ext_modules=extensions())
