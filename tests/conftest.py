"""Makes ``tests/support`` importable: ``from corpus import cases``, ``from java_dump import read_dump`` …"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
