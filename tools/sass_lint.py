"""Reads the machine code of the CUDA kernels and says what a GPU would be slow at: nobody needs one for that.

    make sass-lint                                   # builds libscaffolding_cuda.so, then every object of it
    python tools/sass_lint.py build/CMakeFiles/scaffolding_cuda.dir [--table] [--filter TEXT]

Failures, each with its kernel: loads and stores by generic addresses, which the GPU has to look up; double precision
where no argument is double, at 1/2 to 1/64 of the rate; spills; float8 made without the GPU's conversions, where a
kernel's template arguments name a float8 (of dtypes that it learns at run time nothing is said); of kernels that take a
PreviousGrid (backend/cuda/previous_grid.cuh) memory that is touched before they wait for it. What is so on purpose
stands in KNOWN with its reason, and is a failure there as soon as it is not so any more.

Needs cuobjdump and nvdisasm: on the PATH, in CUDA's toolkit, or of PyPI (nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm).
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

GENERIC, DOUBLE, SPILL, NO_CONVERSION = "generic addresses", "double precision", "spills", "no float8 conversion"
EARLY, NEVER = "memory before the wait for the grid before", "no wait for the grid before"
# (what, part of the object's path, part of the kernel's name, reason)
KNOWN = [
    (SPILL, "pointwise", "", "the reduction of large angles is CUDA's own"),
    (SPILL, "random/philox", "Normal<double>", "Box and Muller in double, a sine and a cosine of it"),
    (SPILL, "matmul/gemm", "", "only where cuBLASLt is not"),
    (SPILL, "backend/cuda/cub", "", "CUB's"),
    (NO_CONVERSION, "matmul/wgmma_product", "", "wgmma multiplies the codes as they are"),
    (SPILL, "quantize/fp8", "measured_rows<double", "nobody quantises doubles often"),
    (GENERIC, "group_norm/", "kept_g", "the shared memory of another block, which has no other instruction"),
    (GENERIC, "group_norm/group_norm.cu", "held_groups<", "as of kept_groups"),
    (GENERIC, "backend/cuda/cub", "DeviceScanKernel<", "CUB's"),
    (SPILL, "group_norm/group_norm.cu", "kept_groups<double", "nobody normalises doubles often"),
    (SPILL, "group_norm/group_norm.cu", "whole_groups<float, 1, true, 1024", "two registers, where no vector fits"),
    (SPILL, "layer_norm/layer_norm", "row_norm_gradients<Half", "one register"),
    (SPILL, "rms_norm/rms_norm", "row_norm_gradients<Half", "one register"),
    (SPILL, "group_norm/group_norm_backward", "whole_groups<float, 1>", "a few registers, where no vector fits"),
    (SPILL, "attention/attention.cu", ", 4, 4>", "one register, of kernels for what tensor cores are not for"),
    (SPILL, "attention_mma_backward", "key_gradients_mma<", "heads of 160 alone, whose sums fill the registers"),
    (SPILL, "reduce/arg_reduce", "arg_reduce_rows<long>", "nobody asks for the places of many int64"),
    (SPILL, "spatial/spatial", "remap_gradients<", "one register"),
    (SPILL, "reduce/reduce.cu", "reduce_runs<", "a few registers, of five of its kernels"),
    (DOUBLE, "layer_norm/layer_norm", "row_norm_total_sums", "a few hundred numbers of each column"),
    (DOUBLE, "rms_norm/rms_norm", "row_norm_total_sums", "a few hundred numbers of each column"),
    (DOUBLE, "batch_norm/batch_norm", "channel_statistics", "a few operations of each channel"),
    (DOUBLE, "reduce/reduce.cu", "reduce_runs<", "once for the sum of a few vectors, and of each result"),
    (DOUBLE, "reduce/reduce.cu", "reduce_columns<", "once for the sum of 16 rows, and of each result"),
    (DOUBLE, "reduce/reduce.cu", "join_pieces<", "a few numbers of each result"),
    (DOUBLE, "reduce/reduce.cu", "reduce_strided<", "memory with gaps and rare reductions; of integers each result"),
    (DOUBLE, "nn/clip_grad", "sum", "squares of float32, which leave its range"),
    (DOUBLE, "nn/clip_grad", "scale_elements", "doubles among them, the dtype is known at run time"),
    (DOUBLE, "adam", "", "the numbers of the step, once a thread"),
    (DOUBLE, "optim/multi_tensor", "Sgd<float>", "the numbers of the step, once a thread"),
    (DOUBLE, "optim/multi_tensor", "make_numbers", "one thread"),
    (DOUBLE, "index/nonzero", "", "doubles among others, the dtype is known at run time"),
    (DOUBLE, "factory/range", "range", "numbers as the CPU makes them, to the last bit"),
    (DOUBLE, "pointwise/pointwise_binary", "floor_divide_fn", "quotients from 2^24 on alone"),
    *((DOUBLE, "pointwise/pointwise_unary", f, "CUDA's own, of large angles") for f in ("sin_fn", "cos_fn", "tan_fn")),
]

INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z0-9_.]+)")
FUNCTION = re.compile(r"\s*Function : (\S+)")
ARCH = re.compile(r"\s*(?:arch = |code for |\.target\s+)sm_(\d+)")
MEMORY = re.compile(r"(LDG|STG|LD|ST|ATOM|ATOMG|RED|LDGSTS|UTMALDG|UTMASTG|UBLKCP)(\.|$)")
RESOURCES = re.compile(r"\s*Function (\S+):\n\s*REG:(\d+) STACK:(\d+) SHARED:(\d+)")


class Kernel:
    def __init__(self, source, mangled, arch=0):
        self.source, self.mangled, self.name, self.arch = source, mangled, mangled, arch
        self.instructions = collections.Counter()
        self.early = 0  # accesses of device memory in front of its wait for the grid before, in the order of the text
        self.registers = self.shared = 0

    def add(self, op):
        self.early += bool(MEMORY.match(op)) and not self.instructions["ACQBULK"]
        self.instructions[op] += 1

    def count(self, pattern):
        return sum(n for op, n in self.instructions.items() if re.match(pattern, op))

    def problems(self):
        """[(what, how many instructions)]"""
        found = [
            (GENERIC, self.count(r"(LD|ST|ATOM|RED)(\.|$)")),
            (SPILL, self.count(r"(LDL|STL)(\.|$)")),
        ]
        if "double" not in self.name:
            found.append((DOUBLE, self.count(r"D(ADD|MUL|FMA|SETP|MNMX)(\.|$)")))
        if "Float8" in self.name and not self.count(r"F2FP\..*E[45]M[32]"):
            found.append((NO_CONVERSION, 1))
        if "PreviousGrid" in self.mangled and self.arch >= 90:
            found += [(EARLY, self.early)] if self.instructions["ACQBULK"] else [(NEVER, 1)]
        return [(what, n) for what, n in found if n]


def tool(name):
    """The path of one of CUDA's binary utilities; SystemExit where it is nowhere."""
    toolkit = [os.path.join(os.environ.get(v, ""), "bin") for v in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda/bin"]
    packages = [str(p) for folder in sys.path for p in pathlib.Path(folder).glob("nvidia/*/bin")]
    path = os.pathsep.join([os.environ.get("PATH", ""), *toolkit, *packages])
    found = shutil.which(name, path=path)
    if not found:
        raise SystemExit(f"sass_lint: needs {name}: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
    return found


def kernels_of(listing, resources, source):
    """The kernels of an object, from what cuobjdump -sass and -res-usage say of it."""
    kernels, kernel, arch = {}, None, 0
    for line in listing.splitlines():
        if kernel and "*/ " in line:
            if m := INSTRUCTION.match(line):
                kernel.add(m[1])
        elif m := ARCH.match(line):
            arch = int(m[1])
        elif m := FUNCTION.match(line):
            kernel = kernels.setdefault(m[1], Kernel(source, m[1], arch))
    for name, registers, _, shared in RESOURCES.findall(resources):
        if name in kernels:
            kernels[name].registers, kernels[name].shared = int(registers), int(shared)
    return list(kernels.values())


def read(path):
    dump = tool("cuobjdump")
    environment = {**os.environ, "PATH": os.pathsep.join([os.path.dirname(tool("nvdisasm")), os.environ["PATH"]])}

    def said(option):
        done = subprocess.run([dump, option, str(path)], capture_output=True, text=True, env=environment)
        return done.stdout if done.returncode == 0 else ""  # an object without device code

    return kernels_of(said("-sass"), said("-res-usage"), str(path))


def demangle(kernels):
    names = subprocess.run(
        ["c++filt"], input="\n".join(k.mangled for k in kernels), capture_output=True, text=True, check=True
    ).stdout.split("\n")
    for kernel, name in zip(kernels, names):
        name = re.sub(r"\(anonymous namespace\)::|sf::cuda::|sf::|^void ", "", name)
        name = re.sub(r"\([\w ]+\)(?=-?\d)", "", name)  # the type of a number among a template's arguments
        kernel.name = re.sub(r"\(.*", "", name)


def failures(kernels, known=KNOWN):
    """Lines that say what is wrong."""
    lines, used = [], set()
    for k in kernels:
        for what, n in k.problems():
            excuse = next((e for e in known if e[0] == what and e[1] in k.source and e[2] in k.name), None)
            if excuse:
                used.add(excuse)
            else:
                lines.append(f"{k.source}: {k.name}: {what}: {n} instructions")
    for e in known:
        if e not in used and any(e[1] in k.source for k in kernels):
            lines.append(f"KNOWN of tools/sass_lint.py has '{e[0]}' for {e[1]} {e[2]}, and no kernel has it any more")
    return lines


def table(kernels):
    lines = [f"{'kernel':90}{'instructions':>13}{'registers':>11}{'shared':>8}"]
    for k in sorted(kernels, key=lambda k: (k.source, k.name)):
        lines.append(f"{k.name[:88]:90}{sum(k.instructions.values()):13}{k.registers:11}{k.shared:8}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=pathlib.Path, help="objects, cubins, or folders of objects")
    parser.add_argument("--filter", default="", help="part of the paths of the objects that are read")
    parser.add_argument("--table", action="store_true", help="instructions, registers and shared memory of each kernel")
    args = parser.parse_args()
    files = []
    for path in args.paths:
        files += sorted(path.rglob("*.cu.o")) if path.is_dir() else [path]
    files = [f for f in files if args.filter in str(f)]
    if not files:
        raise SystemExit("sass_lint: no objects there: build libscaffolding_cuda.so first (make cuda)")
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        kernels = [k for some in pool.map(read, files) for k in some]
    demangle(kernels)
    if args.table:
        print(table(kernels))
    wrong = failures(kernels)
    print("\n".join(wrong + [f"sass_lint: {len(kernels)} kernels of {len(files)} objects, {len(wrong)} failures"]))
    return 1 if wrong or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
