"""Writes python/scaffolding/torch_names.txt, the public names of PyTorch with the advice of torch_advice.txt for those
that are not here. The package reads it when a name is missed (_missing.py).

    python tests/golden/make_golden_torch_names.py     # a Python that has torch
    python tools/torch_names_page.py                   # then: docs/torch_names.md, the table

Prints how many names each namespace has.
"""

import fnmatch
import importlib
import pathlib
import types

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ROOT / "python" / "scaffolding" / "torch_names.txt"
ADVICE = pathlib.Path(__file__).parent / "torch_advice.txt"
NAMESPACES = """torch torch.Tensor torch.nn torch.nn.functional torch.nn.init torch.nn.utils torch.nn.utils.rnn
    torch.optim torch.optim.functional torch.optim.lr_scheduler torch.optim.swa_utils torch.utils.data torch.autograd
    torch.amp torch.cuda torch.linalg torch.fft torch.distributed""".split()
# What modules import for themselves, and what is not meant for users.
NOT_NAMES = set(
    """BroadcastingList1 BroadcastingList2 BroadcastingList3 Callable DType Optional TYPE_CHECKING assert_int_or_pair
    boolean_dispatch factory_kwargs has_torch_function has_torch_function_unary has_torch_function_variadic
    handle_torch_function reproducibility_notes sparse_support_notes tf32_notes classproperty LoggerBase PRIVATE_OPS
    USE_GLOBAL_DEPS USE_RTLD_GLOBAL_WITH_LIBTORCH prepare_multiprocessing_environment get_file_path StorageBase
    profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 GRID_SAMPLE_INTERPOLATION_MODES GRID_SAMPLE_PADDING_MODES
    legacy_contiguous_format""".split()
)
MODULES = """accelerator amp autograd backends compiler cpu cuda distributed distributions export fft func fx hub jit
    library linalg masked mps multiprocessing nested nn optim overrides package profiler quantization random
    serialization signal sparse special storage testing utils version xpu functional init parallel lr_scheduler
    swa_utils attention grad parameter rnn data""".split()


def public_names(space):
    found = torch.Tensor if space == "torch.Tensor" else importlib.import_module(space)
    names = set(getattr(found, "__all__", ())) if space not in ("torch.nn.utils", "torch.Tensor") else set()
    for name in dir(found):
        value = getattr(found, name, None)
        if isinstance(value, types.ModuleType):
            if name in MODULES and value.__name__ == f"{space}.{name}":
                names.add(name)
        elif space == "torch" or not hasattr(found, "__all__") or space == "torch.nn.utils":
            home = getattr(value, "__module__", None) or ""
            if not home or home.startswith(("torch", "builtins")):
                names.add(name)
    return sorted(n for n in names if not n.startswith("_") and n not in NOT_NAMES)


def read_advice():
    """[(namespace, pattern, advice)] of torch_advice.txt, the first that matches counts."""
    rules, space, advice = [], None, None
    for line in ADVICE.read_text().splitlines():
        if line.startswith("["):
            space = line.strip("[]")
        elif line.startswith("= "):
            advice = line[2:]
        elif line and not line.startswith("#"):
            rules += [(space, pattern, advice) for pattern in line.split()]
    return rules


def wrapped(names):
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) > 118:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + name
    return lines


def write_names():
    rules, used = read_advice(), set()
    lines = [f"# Public names of PyTorch {torch.__version__.split('+')[0]}; after = what to use where one is not here."]
    lines.append("# Written by tests/golden/make_golden_torch_names.py; do not edit.")
    for space in NAMESPACES:
        by_advice = {None: []}
        spaces = (space, "torch") if space == "torch.Tensor" else (space,)  # methods are functions too
        names = public_names(space)
        for name in names:
            matching = (r for s in spaces for r in rules if r[0] == s and fnmatch.fnmatchcase(name, r[1]))
            rule = next(matching, None)
            used.add(rule)
            by_advice.setdefault(rule and rule[2], []).append(name)
        lines.append(f"[{space}]")
        for advice, group in by_advice.items():
            lines += [f"= {advice}"] if advice else []
            lines += wrapped(group) if group else []
        print(f"{space}: {len(names)} names, {len(by_advice[None])} without advice")
    unused = [f"[{space}] {pattern}" for space, pattern, advice in rules if (space, pattern, advice) not in used]
    if unused:
        raise SystemExit(f"{ADVICE.name}: no names of PyTorch: {', '.join(unused)}")
    NAMES.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write_names()
