"""Where the codecs' own C functions are, so that the native kernel calls them without the interpreter lock.

lz4, zstandard and isal carry the C libraries that they wrap, and their extension modules export the functions. Nothing
is linked: a function is looked up when the first batch of its codec comes, proved on a body that is known, and left
alone where either fails. Then ``compression.py`` decompresses, as it does whatever is not ordinary. Snappy is the
kernel's own.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

from segreader.errors import VARIABLES_HINT, OptionError
from segreader.format.compression import Codec

VARIABLE: Final = "SEGREADER_NATIVE_CODECS"
"""Environment variable: the codecs to use natively, with commas between them, or ``none``; by default all."""

_FUNCTIONS: Final[dict[Codec, tuple[str, tuple[str, ...]]]] = {
    Codec.GZIP: ("isal.igzip_lib", ("isal_inflate_stateless", "crc32_gzip_refl")),
    Codec.SNAPPY: ("", ()),
    Codec.LZ4: ("lz4.block._block", ("LZ4_decompress_safe",)),
    # not zstandard's usual backend, which hides them
    Codec.ZSTD: (
        "zstandard._cffi",
        (
            "ZSTD_createDCtx",
            "ZSTD_freeDCtx",
            "ZSTD_decompressDCtx",
            "ZSTD_decompressBegin",
            "ZSTD_nextSrcSizeToDecompress",
            "ZSTD_decompressContinue",
        ),
    ),
}
_KNOWN_BODY: Final = b"a body that is known, " * 20 + bytes(range(64))
_ZSTD_BLOCKS: Final = b"".join(  # the same in two blocks, which take other functions
    (bytes.fromhex("28b52ffd0000e00700"), _KNOWN_BODY[:252], bytes.fromhex("e10700"), _KNOWN_BODY[252:])
)
_KNOWN_BODIES: Final[dict[Codec, str]] = {
    Codec.GZIP: (
        "1f8b08000000000000ff4b5448ca4fa95428c9482c51c82c56c8cecb2fcfd351481c151de4a20c8c4ccc2cac6cec1c9c"
        "5cdc3cbc7cfc028242c222a262e2129252d232b272f20a8a4aca2aaa6aea1a9a5ada3aba7afa068646c626a666e61696"
        "56d636b676f6002412c9a6f8010000"
    ),
    Codec.SNAPPY: (
        "82534e4150505900000000010000000100000070f803546120626f64792074686174206973206b6e6f776e2c20fe1600"
        "fe1600fe1600fe1600fe1600fe1600861600f03f000102030405060708090a0b0c0d0e0f101112131415161718191a1b"
        "1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
    ),
    Codec.LZ4: (
        "04224d186040825e000000ff076120626f64792074686174206973206b6e6f776e2c201600ff90f03100010203040506"
        "0708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f30313233343536"
        "3738393a3b3c3d3e3f00000000"
    ),
    Codec.ZSTD: (
        "28b52ffd0458f5020064056120626f64792074686174206973206b6e6f776e2c20000102030405060708090a0b0c0d0e"
        "0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e"
        "3f01003e539d4dc9c1e726"
    ),
}


def find(codec: int) -> tuple[int, ...] | None:
    """The addresses of a codec's functions; ``None`` if it is not to be used natively.

    Raises:
        OptionError: the environment variable names an unknown codec.
    """
    return _proved(Codec(codec)) if codec in _wanted() else None


def found() -> tuple[str, ...]:
    """The names of the codecs that the native kernel decompresses itself; none where it was not built."""
    try:
        _native_kernel()
    except ImportError:
        return ()
    return tuple(codec.label for codec in _FUNCTIONS if find(codec) is not None)


def _native_kernel() -> Any:
    return importlib.import_module("segreader.format._kernel")


def _wanted() -> frozenset[int]:
    value = os.environ.get(VARIABLE, "")
    by_name = {codec.label: codec for codec in _FUNCTIONS}
    names = {name.strip() for name in value.split(",")} if value else set(by_name)
    if not names <= {*by_name, Codec.NONE.label}:
        raise OptionError(
            f"{VARIABLE} names an unknown codec",
            found=value,
            expected=f"{', '.join(by_name)}, separated by commas, or none",
            hint=VARIABLES_HINT,
        )
    return frozenset(codec for name, codec in by_name.items() if name in names)


@cache
def _proved(codec: Codec) -> tuple[int, ...] | None:
    """The addresses, if the kernel decompresses a known body by them and refuses a damaged one."""
    addresses = _addresses(*_FUNCTIONS[codec])
    if addresses is None:
        return None
    whole = bytes.fromhex(_KNOWN_BODIES[codec])
    sound = [whole, _ZSTD_BLOCKS, whole] if codec is Codec.ZSTD else [whole, whole]
    kernel = _native_kernel().Codecs(1 << 16, lambda _: addresses)
    is_right = kernel.decompress(codec, whole[:-9]) is None
    return addresses if is_right and all(kernel.decompress(codec, one) == _KNOWN_BODY for one in sound) else None


def _addresses(module: str, names: tuple[str, ...]) -> tuple[int, ...] | None:
    """Where the functions are in the file of an extension module, which need not be imported."""
    if not names:
        return ()
    try:
        spec = find_spec(module)
        if spec is None or spec.origin is None:
            return None
        library = ctypes.CDLL(spec.origin)
        return tuple(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names)
    except (ImportError, OSError, AttributeError, ValueError):
        return None
