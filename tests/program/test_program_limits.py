"""A few limits of memory for a few commands; tests/long/test_memory_sweep.py has all of them."""

import memory_sweep
import pytest

import scaffolding as sf


@pytest.mark.parametrize("which", memory_sweep.LIMITS)
def test_little_memory_ends_in_a_line(build_dir, model, tmp_path, which):
    program = build_dir / "scaffolding"
    sf.io.write_image(tmp_path / "given.png", sf.zeros(3, 64, 64, dtype=sf.uint8))
    begin, commands, well = memory_sweep.least(program, which), memory_sweep.commands(model, tmp_path), 0
    # a page more than it starts with, in the middle of what it loads, while it computes, and enough
    for more in (0, 4 << 20, 24 << 20, 90 << 20):
        for name in ("txt2img", "inspect", "convert"):
            well += memory_sweep.ends_well(program, which, begin + more, *commands[name])
    assert memory_sweep.ends_well(program, which, begin + (4 << 30), *commands["txt2img"])
    assert well > 0, "every limit was too little: no limit between was tried"
