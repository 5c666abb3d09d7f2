"""Writes the files of a new op, with a test that fails until the op is finished.

    python tools/new_op.py soft_shrink
    python tools/new_op.py soft_shrink --like torch.nn.functional.softshrink

The op that it writes is the identity of one tensor: checks, shape rule, gradient, kernel table, one kernel for the CPU.
Its test fails because there is no golden file; what to change is in CONTRIBUTING.md, "Add an op".
"""

import argparse
import pathlib
import re
import sys

FILES = {
    "NAME.h": """// NAME: one sentence that says what it computes, with shapes.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

Tensor NAME(const Tensor& input);

}  // namespace sf
""",
    "kernel.h": """// The contract of NAME with backends. Both tensors are contiguous and have one floating dtype and
// one shape.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

struct TYPE {
  TensorView out, in;
};
extern KernelTable<TYPE> NAME_kernel;

}  // namespace sf
""",
    "NAME.cpp": """#include "scaffolding/ops/NAME/NAME.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/NAME/kernel.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf {

constinit KernelTable<TYPE> NAME_kernel{"NAME"};

Tensor NAME(const Tensor& input) {
  check_defined("NAME", "input", input);
  check_floating("NAME", "input", input);
  Tensor x = contiguous(input.detach()), y = empty(x.shape(), x.dtype(), x.device());
  TYPE f{y, x};
  auto kernel = NAME_kernel.find(x.device(), f);
  SF_CHECK_AS(NotSupported, kernel, "NAME: no kernel for ", x.dtype(), " on ", x.device());
  kernel(f);
  return autograd::record("NAME", y, {input}, [](const Tensor& dy) -> Tensors { return {dy}; });
}

SF_OP(NAME, "input").doc("One sentence.").like("LIKE").kernels(NAME_kernel);

}  // namespace sf
""",
    "NAME_native.cpp": """#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/NAME/kernel.h"

namespace sf {
namespace {

void NAME_cpu(const TYPE& f) {
  visit_dtype(f.in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* x = f.in.as<const T>();
    auto* y = f.out.as<T>();
    parallel_for(f.in.numel(), 1 << 15, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = x[i];
    });
  });
}
SF_KERNEL(NAME_kernel, DeviceType::CPU, "native", 0, NAME_cpu, nullptr)

}  // namespace
}  // namespace sf
""",
    "NAME_test.cpp": """#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(NAME) {
  sample(randn({2, 3, 5}));
  sample(randn({4, 3}).transpose(0, 1));
  sample(randn({0, 3}));
  sample(randn({}));
  rejects("input must be a tensor", Tensor());
  rejects("must be a floating-point tensor", randint(0, 5, {3}));
}

}  // namespace sf::test
""",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the op's name, as PyTorch has it where it does")
    parser.add_argument("--like", help="what its values equal; torch.<name> without it")
    parser.add_argument(
        "--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent, help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    name = options.name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        sys.exit(f"new_op: an op's name is snake_case, got '{name}'")
    ops = options.root / "scaffolding/ops"
    folder = ops / name
    if folder.exists():
        sys.exit(f"new_op: {folder} exists already")
    listing = ops / "ops.h"
    lines = listing.read_text().splitlines()
    includes = sorted(
        {line for line in lines if line.startswith("#include")} | {f'#include "scaffolding/ops/{name}/{name}.h"'}
    )
    listing.write_text("\n".join([line for line in lines if not line.startswith("#include")] + includes) + "\n")
    folder.mkdir()
    type_name = "".join(part.capitalize() for part in name.split("_"))
    for file, text in FILES.items():
        text = text.replace("NAME", name).replace("TYPE", type_name).replace("LIKE", options.like or f"torch.{name}")
        (folder / file.replace("NAME", name)).write_text(text)
        print(f"wrote scaffolding/ops/{name}/{file.replace('NAME', name)}")
    print(
        f"next: build, run build/dev/scaffolding_tests --gtest_filter='op_{name}*', and see CONTRIBUTING.md, \"Add an "
        'op"'
    )


if __name__ == "__main__":
    main()
