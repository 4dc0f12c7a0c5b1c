"""Makes ``tests/support`` importable: ``from corpus import cases``, ``from java_dump import read_dump`` …"""

from __future__ import annotations

import gc
import importlib.util
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

SUPPORT = Path(__file__).parent / "support"
sys.path.insert(0, str(SUPPORT))

if importlib.util.find_spec("hypothesis") is not None:  # PyFlink's environment lacks it
    import profiles  # noqa: F401  before Hypothesis looks for --hypothesis-profile

if TYPE_CHECKING:
    from servers.pool import ServerPool


OURS = ("segreader", "spark_jobs", "pyspark_segreader", "tests", "benchmarks", "docs", "examples", "fixtures")


def pytest_configure(config: pytest.Config) -> None:
    """Have Ctrl-C and a closed terminal end what tests start, make deprecated calls of this repository errors, and
    refuse a pytest that pytest-xdist cannot work with."""
    # A shell that runs the tests in the background, or nohup, has these signals ignored, and children inherit that.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    ours = "|".join([*OURS, *sorted(path.stem for path in SUPPORT.iterdir() if not path.name.startswith("_"))])
    for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
        config.addinivalue_line("filterwarnings", rf"error::{kind.__name__}:({ours})(\.|$)")
    # Without the name of a group in a test's id, each worker would start every cluster.
    if config.getoption("dist", "no") == "loadgroup" and not hasattr(pytest.Item, "_nodeid"):
        raise pytest.UsageError(f"pytest {pytest.__version__} keeps no groups together: see pyproject.toml")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the 13,000 tests out of garbage collection: `gc.collect()` of a test would look at them each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Let what was collected go: extension modules say at exit what is left of them."""
    gc.unfreeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Name the order of the tests again where one failed: with ``-q``, pytest-randomly does not."""
    if exitstatus == pytest.ExitCode.TESTS_FAILED and (seed := config.getoption("randomly_seed", None)) is not None:
        terminalreporter.write_line(f"To repeat this order: --randomly-seed={seed} -n 0 (see CONTRIBUTING.md)")


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPool]:
    """Object stores on loopback: ``servers.get("moto")``. Mark the tests ``xdist_group("servers")``: one of each."""
    from servers.pool import ServerPool

    with ServerPool(tmp_path_factory.mktemp("servers")) as pool:
        yield pool
