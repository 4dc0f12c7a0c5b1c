"""Leader-epoch checkpoints of one partition that disagree where an epoch begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import Planted

import segreader
from segreader.testing.directory import write_files
from segreader.testing.side_files import encode_leader_epochs


@pytest.mark.parametrize("number", [1, 2])
def test_a_plan_notes_checkpoints_that_disagree_where_an_epoch_begins(tmp_path: Path, number: int) -> None:
    planted = Planted(tmp_path)
    write_files(tmp_path, planted.files)
    assert not [note for note in segreader.scan(tmp_path).plan().notes if "epoch" in note]
    (_, first), (epoch, start) = planted.segments[2].leader_epochs
    planted.put(number, "leader_epoch_checkpoint", encode_leader_epochs([(0, first), (epoch, start + 1)]))
    assert planted.codes() & {"bad-leader-epochs", "epoch-mismatch"}
    write_files(tmp_path, planted.files)
    notes = segreader.scan(tmp_path, on_gap="skip").plan().notes
    assert any(f"epoch {epoch} begins at offset" in note for note in notes)
