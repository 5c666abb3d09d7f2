"""Every command under limits of memory from the least with which the program starts to enough."""

import pathlib

import memory_sweep
import pytest

import scaffolding as sf

STEP = 4 << 20


@pytest.mark.parametrize("which", memory_sweep.LIMITS)
@pytest.mark.parametrize("command", memory_sweep.commands(pathlib.Path(), pathlib.Path()))
def test_every_limit_ends_in_what_was_asked_for_or_in_a_line(build_dir, model, tmp_path, which, command):
    program = build_dir / "scaffolding"
    sf.io.write_image(tmp_path / "given.png", sf.zeros(3, 64, 64, dtype=sf.uint8))
    size, enough = memory_sweep.least(program, which), 0
    while enough < 8:  # in a row
        went = memory_sweep.ends_well(program, which, size, *memory_sweep.commands(model, tmp_path)[command])
        enough, size = enough + 1 if went else 0, size + STEP
        assert size < 4 << 30, "four gigabytes are not enough"
