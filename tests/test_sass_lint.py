"""tools/sass_lint.py on listings as cuobjdump writes them: each rule, on a kernel that breaks it and on one that does
not. Needs no CUDA."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import sass_lint  # noqa: E402

LISTING = """
\tcode for sm_{arch}
\t\tFunction : {name}
\t.headerflags\t@"EF_CUDA_TEXMODE_UNIFIED"
        /*0000*/                   LDC R1, c[0x0][0x28] ;        /* 0x00000a00ff017b82 */
                                                                 /* 0x000fe20000000800 */
        /*0010*/              @!P0 {instruction} ;               /* 0x0000000604047981 */
        /*0020*/                   EXIT ;                        /* 0x000000000000794d */
"""
RESOURCES = """
Resource usage:
 Function {name}:
  REG:40 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:608 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def kernels(instruction, name="_Z1fPf", arch="90a"):
    found = sass_lint.kernels_of(
        LISTING.format(name=name, instruction=instruction, arch=arch), RESOURCES.format(name=name), "ops/some/some.cu.o"
    )
    sass_lint.demangle(found)
    return found


@pytest.mark.parametrize(
    "instruction, what",
    (
        ("LD.E.128 R4, desc[UR6][R2.64]", sass_lint.GENERIC),
        ("ST.E desc[UR6][R2.64], R5", sass_lint.GENERIC),
        ("DFMA R2, R4, R6, R8", sass_lint.DOUBLE),
        ("STL.64 [R1], R2", sass_lint.SPILL),
        ("LDG.E.128 R4, desc[UR6][R2.64]", None),
        ("LDS R4, [R2]", None),
        ("STG.E desc[UR6][R2.64], R5", None),
        ("FFMA R2, R4, R6, R8", None),
    ),
)
def test_what_a_gpu_is_slow_at_is_a_failure(instruction, what):
    lines = sass_lint.failures(kernels(instruction), known=[])
    assert lines == ([] if what is None else [f"ops/some/some.cu.o: f: {what}: 1 instructions"])


def test_double_precision_is_right_where_the_kernel_is_for_doubles():
    assert sass_lint.failures(kernels("DFMA R2, R4, R6, R8", "_Z1fIdEvPT_"), known=[]) == []  # f<double>(double*)


def test_memory_is_touched_behind_the_wait_for_the_grid_before():
    name, load = "_Z1fPfN2sf4cuda12PreviousGridE", "LDG.E R4, desc[UR6][R2.64]"
    wait, then = "ACQBULK", " ; /* 0x0 */\n        /*0018*/                   "
    said = "ops/some/some.cu.o: f: memory before the wait for the grid before: 1 instructions"
    assert sass_lint.failures(kernels(wait + then + load, name), known=[]) == []
    assert sass_lint.failures(kernels("LDS R4, [R2]" + then + wait, name), known=[]) == []
    assert sass_lint.failures(kernels(load + then + wait, name), known=[]) == [said]
    assert "no wait" in sass_lint.failures(kernels(load, name), known=[])[0]
    assert sass_lint.failures(kernels(load, name, arch="80"), known=[]) == []  # where nothing starts early
    assert sass_lint.failures(kernels(load), known=[]) == []


def test_float8_needs_the_gpus_conversions():
    name = "_Z1fIN2sf10Float8E4M3EEvPT_"
    assert "no float8 conversion" in sass_lint.failures(kernels("PRMT R2, R4, R6, R8", name), known=[])[0]
    assert sass_lint.failures(kernels("F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R2, R4, R6, RZ", name), known=[]) == []
    assert sass_lint.failures(kernels("F2FP.F16.E4M3.UNPACK_B R2, R4", name), known=[]) == []


def test_what_is_known_needs_to_be_so():
    known = [(sass_lint.SPILL, "ops/some", "", "a reason")]
    assert sass_lint.failures(kernels("STL [R1], R2"), known) == []
    assert "no kernel has it any more" in sass_lint.failures(kernels("LDS R4, [R2]"), known)[0]


def test_the_table_has_sizes_and_registers():
    line = sass_lint.table(kernels("LDS R4, [R2]")).splitlines()[1].split()
    assert line == ["f", "3", "40", "1024"]


def test_what_is_no_object_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sass_lint.py", str(tmp_path)])
    with pytest.raises(SystemExit, match="build libscaffolding_cuda.so first"):
        sass_lint.main()
