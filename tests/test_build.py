"""What the build promises: isolation of instruction sets, an installation others can use, a program that answers."""

import os
import pathlib
import re
import shutil
import subprocess

import check_isa_symbols
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_instruction_sets_share_no_symbols(build_dir):
    found, objects = check_isa_symbols.leaks(build_dir)
    assert objects > 0
    assert not found, "\n".join(f"{path.name}: {symbol}" for path, symbol in found[:40])


def test_kernels_that_avx512_serves_for_avx512bf16_have_nothing_of_it(build_dir):
    listed = re.search(r"set\(sf_without_bf16 ([^)]*)\)", (ROOT / "cmake/sources.cmake").read_text())[1].split()
    assert listed and all((ROOT / f"scaffolding/{name}.cpu.cpp").is_file() for name in listed)
    objects = (build_dir / "compile_commands.json").read_text()
    compiled = {isa: f"sf_cpu_{isa}.dir/" in objects for isa in ("avx512", "avx512bf16")}
    for name in listed:
        for isa, built in compiled.items():
            wanted = built and not (isa == "avx512bf16" and compiled["avx512"])
            assert (f"sf_cpu_{isa}.dir/scaffolding/{name}.cpu.cpp.o" in objects) == wanted, f"{name}, {isa}"
    if compiled["avx512bf16"] and not compiled["avx512"]:
        for name in listed:
            path = build_dir / f"CMakeFiles/sf_cpu_avx512bf16.dir/scaffolding/{name}.cpu.cpp.o"
            assert not re.search("vcvtne|vdpbf16", run("objdump", "-d", path)), path.name


def test_the_library_shows_nothing_of_others(build_dir):
    library = build_dir / "libscaffolding.so"
    shown = run("nm", "--dynamic", "--defined-only", "--format=just-symbols", library).split()
    assert len(shown) > 1000 and any(name.startswith("_ZN2sf6Tensor") or "sf6Tensor" in name for name in shown)
    assert [name for name in shown if "2sf" not in name] == []


@pytest.mark.usefixtures("build_lock")
def test_another_project_finds_and_uses_the_installation(build_dir, tmp_path):
    prefix = tmp_path / "prefix"
    run("cmake", "--build", build_dir, "--target", "scaffolding_static")
    run("cmake", "--install", build_dir, "--prefix", prefix)
    assert not (prefix / "scaffolding").exists(), "the Python component is for wheels only"
    run("cmake", "-S", ROOT / "tests/find_package", "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    assert run(tmp_path / "build/uses_scaffolding").endswith("gradient 5 7\n")
    alone = tmp_path / "build/uses_scaffolding_static"
    assert run(alone).endswith("gradient 5 7\n") and "libscaffolding" not in run("ldd", alone)
    # The installed program finds its library after the folder was moved, and pkg-config names the new place.
    moved = prefix.rename(tmp_path / "moved")
    assert run(moved / "bin/scaffolding", "version").startswith("scaffolding ")
    (described,) = moved.rglob("scaffolding.pc")
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed: its file was not tried")
    environment = os.environ | {"PKG_CONFIG_PATH": str(described.parent)}
    flags = run("pkg-config", "--cflags", "--libs", "scaffolding", env=environment).split()
    library = next(flag[2:] for flag in flags if flag.startswith("-L"))
    assert pathlib.Path(library).resolve().is_relative_to(moved), flags
    program = tmp_path / "by_pkg_config"
    run("c++", ROOT / "tests/find_package/main.cpp", *flags, f"-Wl,-rpath,{library}", "-o", program)
    assert run(program).endswith("gradient 5 7\n")


def test_the_program_describes_ops_devices_and_environment(build_dir):
    program = build_dir / "scaffolding"
    assert re.match(r"scaffolding \d+\.\d+\.\d+ \(", run(program, "version"))
    assert run(program, "--version") == run(program, "version")
    assert re.search(r"add on cpu: .*native-\w+", run(program, "ops", "add"))
    assert "softmax" in run(program, "ops", "--where")
    assert run(program, "devices").startswith("cpu: ")
    assert "SF_NUM_THREADS = '3'" in run(program, "env", env=os.environ | {"SF_NUM_THREADS": "3"})
    unknown = subprocess.run([program, "ops", "no_such_op"], capture_output=True, text=True)
    assert unknown.returncode == 2 and "there is no op 'no_such_op'" in unknown.stderr


@pytest.mark.parametrize("isa", ["", "base", "amx_emulated"])
def test_the_program_names_the_units_it_uses(build_dir, needs_isa, isa):
    needs_isa(isa)
    said = run(build_dir / "scaffolding", "devices", env=os.environ | {"SF_ISA": isa})
    units = re.findall(r"^cpu unit: (\S+ \S+), [\d.]+ T(?:FL)?OP/s on \d+ threads?$", said, re.MULTILINE)
    assert sum(unit.endswith(" float32") for unit in units) == 1 and len(set(units)) == said.count("cpu unit"), said
    assert isa == "" or not any(unit.startswith("AMX") for unit in units), "tiles in plain C++ are no unit"


def test_the_program_times_a_model(build_dir):
    program = build_dir / "scaffolding"
    assert "sd15-unet" in run(program, "bench")
    for dtype in ("f32", "bf16"):
        text = run(program, "bench", "tiny-unet", "--dtype", dtype, "--batch", "8", "--repeats", "1")
        assert re.match(r"tiny-unet: .*batch 8, " + dtype, text)
        # The work as the ops define it, whatever kernels run.
        assert abs(float(re.search(r"([\d.]+) GFLOP at", text)[1]) - 2.3) < 0.2, text
        weights, above, resident = map(
            int,
            re.search(
                r"weights (\d+) MB, at most (\d+) MB of tensors above them; the process held at most (\d+) MB", text
            ).groups(),
        )
        assert weights == {"f32": 5, "bf16": 2}[dtype] and 0 < above < 20 and weights + above < resident < 500
        assert re.search(r"gemm \S+ +\d+ .*%", text) and "between kernels" in text
        assert re.search(r"\d% of the [\d.]+ GFLOP/s of \S+ (float32|bfloat16), by processor time \d+%", text), text
    unknown = subprocess.run([program, "bench", "sd99"], capture_output=True, text=True)
    assert unknown.returncode == 2 and "there is no model 'sd99'" in unknown.stderr


@pytest.mark.parametrize("by_dot_products", ["0", "1"])
def test_both_ways_of_multiplying_bfloat16(build_dir, by_dot_products):
    """A processor takes the faster one; each must be right on all that have it."""
    tests = "--gtest_filter=*conv*:*linear*:*matmul*:*attention*:*addmm*"
    subprocess.run(
        [build_dir / "scaffolding_tests", tests],
        env=os.environ | {"SF_BF16_DOT": by_dot_products},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def test_kernels_for_tiles_in_plain_cpp(build_dir, needs_isa):
    """They are the kernels of processors with tiles (AMX), which few that run the tests have."""
    needs_isa("amx_emulated")
    env = {"GOMP_SPINCOUNT": "2000"} | os.environ | {"SF_ISA": "amx_emulated"}  # beside other tests
    assert "gemm on cpu: native-amx_emulated" in run(build_dir / "scaffolding", "ops", "matmul", env=env)
    names = "Tile* SplitProduct* RowGemm* Conv* attention* op_*conv* op_*linear* op_*matmul* op_*mm* op_*attention*"
    run(build_dir / "scaffolding_tests", "--gtest_brief=1", "--gtest_filter=" + ":".join(names.split()), env=env)


@pytest.mark.parametrize("isa", ["", "avx2"])
def test_int8_without_its_instruction(build_dir, needs_isa, isa):
    """Processors that have it would test the other way only for the oldest instruction set."""
    needs_isa(isa)
    subprocess.run(
        [build_dir / "scaffolding_tests", "--gtest_filter=IntMm*:op__int_mm*"],
        env=os.environ | {"SF_INT8_DOT": "0"} | ({"SF_ISA": isa} if isa else {}),
        check=True,
        stdout=subprocess.DEVNULL,
    )


def test_one_version_everywhere(build_dir):
    version = re.search(r"project\(scaffolding VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    assert run(build_dir / "scaffolding", "version").startswith(f"scaffolding {version} ")
