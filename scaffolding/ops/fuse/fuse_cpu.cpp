// Fused functions on the CPU: chains of floats in registers (fuse_registers.cpp), all others here, by the row kernels
// of the ops, one block of elements after the other. A block's values stay in the first cache, and what an argument's
// strides ask for is gathered once per block.
#include <algorithm>

#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/copy/kernel.h"
#include "scaffolding/ops/fuse/fuse_registers.h"
#include "scaffolding/ops/fuse/kernel.h"
#include "scaffolding/ops/fuse/walk.h"
#include "scaffolding/ops/pointwise/where_kernel.h"

namespace sf {

namespace {

using pointwise::TracedOp;
using pointwise::TracedOperand;
using pointwise::TracedProgram;

// of values of a block: half of a first cache of 48 KiB, three quarters of one of 32
constexpr int64_t kCacheBytes = 24 << 10;
constexpr int64_t kApart =
    5 * 64;  // bytes between two blocks: a distance of 4096 would look like the same address to loads behind stores
constexpr int64_t kGrain = 1 << 15;  // elements times ops a thread takes at least

TensorView row_of(const void* data, DType dtype, int64_t n) {
  TensorView v;
  v.data = const_cast<void*>(data);
  v.ndim = 1;
  v.dtype = dtype;
  v.sizes[0] = n;
  v.strides[0] = 1;
  return v;
}

// A program with a place for each value. Values that are never alive together share one.
class Plan {
 public:
  explicit Plan(const FusedCall& c) : call_(c), program_(*c.program), walk_(c) {
    const int arguments = int(program_.arguments.size()), values = arguments + int(program_.ops.size());
    std::vector<int> last(size_t(values), -1);
    for (int i = 0; i < int(program_.ops.size()); ++i)
      for (int k = 0; k < program_.ops[size_t(i)].count; ++k)
        if (int v = program_.ops[size_t(i)].in[k].value; v >= 0) last[size_t(v)] = i;
    slots_.assign(size_t(values), -1);
    std::vector<bool> taken;
    auto take = [&](int v) {
      auto free = std::find(taken.begin(), taken.end(), false);
      slots_[size_t(v)] = int(free - taken.begin());
      if (free == taken.end()) taken.push_back(true);
      else *free = true;
    };
    for (int v = 0; v < arguments; ++v) {
      const auto& s = walk_.strides[size_t(v)];
      direct_.push_back(walk_.ndim == 1 && s[0] == 1);
      if (!direct_.back() && last[size_t(v)] >= 0) take(v);
    }
    for (int i = 0; i < int(program_.ops.size()); ++i) {
      const TracedOp& op = program_.ops[size_t(i)];
      // row kernels may write over what they read
      const bool in_place = op.kind == TracedOp::Row && size_of(op.dtype) == size_of(op.out);
      if (!in_place && arguments + i != program_.result) take(arguments + i);
      for (int k = 0; k < op.count; ++k)
        if (int v = op.in[k].value; v >= 0 && last[size_t(v)] == i && slots_[size_t(v)] >= 0)
          taken[size_t(slots_[size_t(v)])] = false;
      if (in_place && arguments + i != program_.result) take(arguments + i);
      kernels_.push_back(op.kind == TracedOp::Row ? find(op) : KernelTable<PointwiseRow>::Found(nullptr, nullptr));
    }
    slot_count_ = int64_t(taken.size());
    for (int v = 0; v < values; ++v) item_ = std::max(item_, int64_t(size_of(program_.dtype_of(v))));
    block_ =
        std::clamp(kCacheBytes / (item_ * std::max<int64_t>(slot_count_, 1)) / 64 * 64, int64_t(256), int64_t(4096));
    slot_bytes_ = block_ * item_ + kApart;
    fill_constants();
  }

  void run() {
    int64_t n = call_.out.numel(), blocks = (n + block_ - 1) / block_;
    int64_t grain = std::max<int64_t>(1, kGrain / (block_ * std::max<int64_t>(1, int64_t(program_.ops.size()))));
    parallel_for(blocks, grain, [&](int64_t from, int64_t to) {
      std::vector<char> memory(size_t(slot_count_ * slot_bytes_ + 64));
      char* slots = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
      for (int64_t b = from; b < to; ++b) run_block(slots, b * block_, std::min(block_, n - b * block_));
    });
  }

 private:
  KernelTable<PointwiseRow>::Found find(const TracedOp& op) const {
    static const char present = 0;  // kernels ask which operands there are, not where
    PointwiseRow row{nullptr, {}, 0, op.dtype, op.p0, op.p1};
    for (int k = 0; k < op.count; ++k) row.in[k] = op.in[k].absent ? nullptr : &present;
    auto kernel = op.table->find(Device(), row);
    SF_CHECK_AS(NotSupported, kernel, "fuse: ", op.name, ": no kernel for ", op.dtype, " on cpu");
    return kernel;
  }

  DType operand_dtype(const TracedOp& op, int k) const {
    return op.kind == TracedOp::Where && k == 0 ? kBool : op.dtype;
  }

  void fill_constants() {
    for (auto& op : program_.ops)
      for (int k = 0; k < op.count; ++k) {
        if (op.in[k].value >= 0 || op.in[k].absent) continue;
        std::vector<char> values(size_t(block_ * 8));
        visit_dtype(operand_dtype(op, k), [&](auto tag) {
          using T = typename decltype(tag)::type;
          T v;
          if constexpr (std::is_floating_point_v<T>) v = T(op.in[k].number);
          else if constexpr (std::is_same_v<T, bool>) v = op.in[k].integer != 0;
          else if constexpr (std::is_integral_v<T>) v = T(op.in[k].integer);
          else v = from_float<T>(float(op.in[k].number));
          std::fill_n(reinterpret_cast<T*>(values.data()), block_, v);
        });
        constants_[&op.in[k]] = std::move(values);
      }
  }

  void run_block(char* slots, int64_t first, int64_t n) const {
    const int arguments = int(program_.arguments.size());
    auto slot = [&](int v) -> char* { return slots + int64_t(slots_[size_t(v)]) * slot_bytes_; };
    for (int v = 0; v < arguments; ++v)
      if (slots_[size_t(v)] >= 0)
        walk_.gather(v, size_of(program_.arguments[size_t(v)]), slot(v), call_.in[v].data, first, n);
    auto place = [&](int v) -> char* {
      if (v == program_.result) return static_cast<char*>(call_.out.data) + first * int64_t(size_of(call_.out.dtype));
      if (v < arguments && direct_[size_t(v)])
        return static_cast<char*>(call_.in[v].data) + first * int64_t(size_of(program_.arguments[size_t(v)]));
      return slot(v);
    };
    auto source = [&](const TracedOperand& o) -> const void* {
      if (o.absent) return nullptr;
      return o.value >= 0 ? place(o.value) : constants_.at(&o).data();
    };
    for (size_t i = 0; i < program_.ops.size(); ++i) {
      const TracedOp& op = program_.ops[i];
      char* to = place(arguments + int(i));
      if (op.kind == TracedOp::Row) {
        PointwiseRow row{to, {}, n, op.dtype, op.p0, op.p1};
        for (int k = 0; k < op.count; ++k) row.in[k] = source(op.in[k]);
        kernels_[i](row);
      } else if (op.kind == TracedOp::Cast) {
        Copy copy{row_of(to, op.out, n), row_of(source(op.in[0]), op.dtype, n)};
        copy_kernel.find(Device(), copy)(copy);
      } else {
        Where where{row_of(to, op.out, n), row_of(source(op.in[0]), kBool, n), row_of(source(op.in[1]), op.dtype, n),
                    row_of(source(op.in[2]), op.dtype, n)};
        where_kernel.find(Device(), where)(where);
      }
    }
  }

  const FusedCall& call_;
  const TracedProgram& program_;
  FusedWalk walk_;
  std::vector<bool> direct_;  // arguments that lie in memory as the result does
  std::vector<int> slots_;    // of each value; -1: it lies elsewhere
  std::vector<KernelTable<PointwiseRow>::Found> kernels_;
  std::map<const TracedOperand*, std::vector<char>> constants_;
  int64_t slot_count_ = 0, block_ = 0, item_ = 1, slot_bytes_ = 0;  // block: elements; item: bytes of the largest
};

void run(const FusedCall& c) {
  if (!run_in_registers(c)) Plan(c).run();
}
SF_KERNEL(fused_kernel, DeviceType::CPU, "native", 0, run, nullptr)

}  // namespace
}  // namespace sf
