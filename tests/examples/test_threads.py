"""``examples/threads.py``, killed again and again, ends with each record once, as the Java consumer was given it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from corpus import NormalRecord, case
from loading import truth_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "threads.py"


def hex_of(record: NormalRecord) -> str:
    assert record.value is None or isinstance(record.value, bytes)
    return (record.value or b"").hex()


def test_killed_at_any_moment_the_example_ends_with_each_record_once(tmp_path: Path) -> None:
    some, out = case("tv2", "txn-interleaved"), tmp_path / "out"
    command = [sys.executable, str(EXAMPLE), str(some.root / "remote"), some.topic, str(out), "--portion", "3"]
    kills = 0
    for _ in range(3):
        run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        before = len(list(out.glob("*.checkpoint"))) if out.exists() else 0
        end = time.monotonic() + 60
        while run.poll() is None and time.monotonic() < end:
            if out.exists() and len(list(out.glob("*.checkpoint"))) > before:
                run.kill()
                kills += 1
                break
            time.sleep(0.002)
        run.communicate()
        if not kills:  # it had ended before we saw a checkpoint of it: from the beginning
            shutil.rmtree(out, ignore_errors=True)
    assert kills
    for path in out.glob("*.ndjson"):
        with path.open("ab") as file:
            file.write(b'{"partition": 0, "off')  # as a crash leaves it
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for path in out.glob("*.ndjson") for line in path.read_text().splitlines()]
    seen = sorted((line["partition"], line["offset"], line["value"]) for line in lines)
    expected = [(one.partition, one.offset, hex_of(one)) for one in truth_of(some, "committed")]
    assert seen == expected
