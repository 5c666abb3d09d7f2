"""Where the repository's folders are, for tests at any depth."""

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
# data sets that are not in the repository
SHARED = pathlib.Path(os.environ.get("SF_SHARED_DATA", ROOT.parent / "shared" / "data"))
