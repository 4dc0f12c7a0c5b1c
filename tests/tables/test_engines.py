"""Ray, Dask and ibis read a topic as the documentation shows it; each test needs its library, which no extra brings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from corpus import CORPUS
from pages import blocks, page

import segreader.tables.dataset
from segreader.tables.dataset import TopicDataset, open_dataset

ROOT = Path(__file__).parents[2]
REMOTE = CORPUS / "tv2" / "remote"
BLOCKS = blocks(page("how-to/python", "how-to/sql"), "py")


PACKAGES = {"ray": "'ray[data]'", "dask": "dask", "ibis": "'ibis-framework[duckdb,polars]'"}


def need(library: str) -> Any:
    return pytest.importorskip(library, reason=f"{library} is not installed: pip install {PACKAGES[library]}")


def run_block_of(library: str, **given: object) -> dict[str, Any]:
    """The names after the code of the page that imports a library has run."""
    (block,) = [one for one in BLOCKS if f"import {library}\n" in one]
    names: dict[str, Any] = dict(given)
    exec(block, names)
    return names


def test_the_page_has_code_for_each_engine() -> None:
    assert [len([one for one in BLOCKS if f"import {name}\n" in one]) for name in ("ray", "dask", "ibis")] == [1, 1, 1]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    found = need("ray")
    pytest.importorskip("ray.data", reason="Ray has no Ray Data: pip install 'ray[data]'")
    path = {"env_vars": {"PYTHONPATH": str(ROOT)}}
    found.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False, runtime_env=path)
    yield found
    found.shutdown()


def test_ray_reads_fragments_as_tasks_and_as_a_dataset(ray: Any) -> None:
    table = open_dataset(REMOTE, topic="multi", split_bytes=1 << 16)
    names = run_block_of("ray", table=table)
    expected = table.to_table()
    assert len(names["fragments"]) > 1
    assert pa.concat_tables(names["tables"]).equals(expected)
    rows = pa.concat_tables(ray.get(names["records"].to_arrow_refs()))
    assert rows.sort_by([("partition", "ascending"), ("offset", "ascending")]).equals(expected)


def test_dask_reads_fragments_in_processes() -> None:
    need("dask")
    table = open_dataset(REMOTE, topic="multi", split_bytes=1 << 16)
    names = run_block_of("dask", table=table)
    assert len(names["tables"]) > 1
    assert pa.concat_tables(names["tables"]).equals(table.to_table())


def test_ibis_pushes_filters_into_a_topic(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    need("ibis")
    made: list[TopicDataset] = []
    init = TopicDataset.__init__

    def note(dataset: TopicDataset, *arguments: Any, **options: Any) -> None:
        made.append(dataset)
        init(dataset, *arguments, **options)

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(segreader.tables.dataset.TopicDataset, "__init__", note)
    run_block_of("ibis")
    assert capsys.readouterr().out.splitlines() == 3 * [
        str([{"partition": 0, "records": 26}, {"partition": 1, "records": 21}])
    ]
    assert [one.metrics.records for one in made] == [47, 47, 47]
