"""Builds the one optional part, the native kernel; everything else about the package is in pyproject.toml.

Environment:
    SEGREADER_REQUIRE_KERNEL=1   a kernel that cannot be built is an error (tests, benchmarks); otherwise
                                 the package installs without it and runs on its plain-Python twin
    SEGREADER_SANITIZE=address   build it for AddressSanitizer (``make test-asan``)
"""

import os
from pathlib import Path

from setuptools import Extension, setup

KERNEL = Path("segreader/format/_kernel.pyx")


def kernel() -> list[Extension]:
    """The extension module, or nothing where it can do without."""
    required = os.environ.get("SEGREADER_REQUIRE_KERNEL") == "1"
    sanitize = os.environ.get("SEGREADER_SANITIZE") == "address"
    if not KERNEL.exists():
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        if required:
            raise
        return []
    flags = ["-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer"] if sanitize else ["-O3"]
    extension = Extension(
        "segreader.format._kernel",
        [str(KERNEL)],
        extra_compile_args=flags,
        extra_link_args=["-fsanitize=address"] if sanitize else [],
    )
    built: list[Extension] = cythonize([extension], build_dir="build/cython", language_level=3)
    for extension in built:  # cythonize makes new ones, without this field
        extension.optional = not required
    return built


setup(ext_modules=kernel())
