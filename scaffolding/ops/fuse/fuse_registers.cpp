#include "scaffolding/ops/fuse/fuse_registers.h"

#include <cstring>
#include <set>

#include "scaffolding/backend/cpu/cache.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/fuse/fuse_steps.h"
#include "scaffolding/ops/fuse/walk.h"

namespace sf {

namespace {

using pointwise::TracedOp;
using pointwise::TracedOperand;
using pointwise::TracedProgram;

constexpr int64_t kPiece = 4096;  // elements of a piece at most
constexpr int64_t kBlock = 1024;  // where rows are short, a piece is several
constexpr int64_t kWidened =
    8192;  // elements of rows that are kept as float32 for all rows: 32 KiB, of which a piece uses a part
constexpr int64_t kGrain = 1 << 15;  // elements times ops a thread takes at least
constexpr size_t kMost = 256;  // steps: they are calls within calls where the compiler does not make jumps of them

bool is_held(DType t) { return t == kFloat32 || t == kBFloat16 || t == kFloat16 || t == kBool; }
int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

void widen(float* to, DType t, const void* from, int64_t stride, int64_t n) {
  auto all = [&]<class T>(const T* p) {
    for (int64_t i = 0; i < n; ++i) to[i] = float(to_float(p[i * stride]));
  };
  t == kFloat32    ? all(static_cast<const float*>(from))
  : t == kBFloat16 ? all(static_cast<const BFloat16*>(from))
  : t == kFloat16  ? all(static_cast<const Half*>(from))
                   : all(static_cast<const bool*>(from));
}

class Chain {
 public:
  explicit Chain(const FusedCall& c)
      : call_(c),
        program_(*c.program),
        walk_(c),
        arguments_(int(program_.arguments.size())),
        last_(size_t(arguments_) + program_.ops.size(), -1) {
    FusedStepsQuery query{&offered_};
    auto kernel = fused_steps.find(Device(), query);
    SF_CHECK_AS(NotSupported, kernel, "fuse: no steps on cpu");
    kernel(query);
    tile_ = offered_.tile;
    for (int i = 0; i < int(program_.ops.size()); ++i)
      for (int k = 0; k < program_.ops[size_t(i)].count; ++k)
        if (int v = program_.ops[size_t(i)].in[k].value; v >= 0) last_[size_t(v)] = i;
    by_rows_ = walk_.ndim == 1 || walk_.sizes[0] >= 4 * tile_;
    row_ = by_rows_ ? walk_.sizes[0] : call_.out.numel();
    piece_ = std::min(by_rows_ ? kPiece : kBlock, (row_ + tile_ - 1) / tile_ * tile_);
    for (int v = 0; v < arguments_; ++v) places_.push_back(place_of(v));
  }

  bool compile() {
    for (const DType t : program_.arguments)
      if (!is_held(t)) return false;
    while (compiled() == Again) {}
    return known_ && steps_.size() <= kMost;
  }

  void run() {
    const int64_t n = call_.out.numel(), in_row = (row_ + piece_ - 1) / piece_, pieces = n / row_ * in_row;
    const int64_t grain = std::max<int64_t>(1, kGrain / (piece_ * int64_t(program_.ops.size())));
    parallel_for(pieces, grain, [&](int64_t from, int64_t to) {
      Thread t{steps_, static_cast<char*>(scratch(size_t(memory_), 0)), std::vector<const char*>(size_t(arguments_))};
      std::memset(t.memory, 0, size_t(memory_));  // what a tile has beyond the end is computed too
      start(t);
      for (int64_t p = from; p < to; ++p) {
        const int64_t row = in_row == 1 ? p : p / in_row, column = (p - row * in_row) * piece_;
        run_piece(t, row, column, std::min(piece_, row_ - column));
      }
      offered_.finish();
    });
  }

 private:
  enum Result { Done, Again };
  // How an argument is read: where it lies; one element for a piece; a row that is the same in all rows, as float32;
  // copied for each piece.
  struct Place {
    enum Kind { Direct, Splat, Widened, Gathered } kind = Direct;
    DType dtype = kFloat32;  // as steps see it
    int64_t memory = 0;      // bytes within a thread's: of the elements, or of the last tile's
    int64_t count = 0;       // of Widened: the elements of a row, and again as many as a piece may ask for
  };
  struct Binding {
    int step, operand, argument, slot;  // argument -1: a slot
  };
  struct Thread {
    std::vector<FusedStep> steps;
    char* memory;
    std::vector<const char*> at;  // of each argument
  };

  int64_t take(int64_t bytes) {
    int64_t at = memory_;
    memory_ += padded(bytes);
    return at;
  }

  Place place_of(int v) {
    Place p{Place::Direct, program_.arguments[size_t(v)]};
    const auto& s = walk_.strides[size_t(v)];
    const int64_t item = int64_t(size_of(p.dtype));
    bool same_rows = walk_.ndim > 1;
    for (int d = 1; d < walk_.ndim; ++d) same_rows = same_rows && s[size_t(d)] == 0;
    if (walk_.dense(v)) {
      p.memory = take(tile_ * item);
    } else if (by_rows_ && s[0] == 0) {
      p = {Place::Splat, kFloat32, take(tile_ * 4)};
    } else if (const int64_t n = walk_.sizes[0] + (by_rows_ ? 0 : piece_);
               s[0] == 1 && same_rows && !(by_rows_ && p.dtype == kFloat32) && widened_ + n <= kWidened) {
      widened_ += n;
      p = {Place::Widened, kFloat32, take((n + tile_) * 4), n};
    } else if (by_rows_ && s[0] == 1) {
      p.memory = take(tile_ * item);
    } else {
      p.kind = Place::Gathered;
      p.memory = take((piece_ + tile_) * item);
    }
    return p;
  }

  // ---- the program as steps, its values one after the other in the registers

  FusedStep& add(FusedStepKind kind) {
    steps_.push_back({offered_.find(kind)});
    known_ = known_ && steps_.back().run;
    return steps_.back();
  }
  void bind(int operand, int argument, int slot) {
    steps_.back().mask[operand] = argument >= 0 && places_[size_t(argument)].kind != Place::Splat ? -1 : 0;
    bindings_.push_back({int(steps_.size()) - 1, operand, argument, slot});
  }
  int new_slot() {
    auto free = std::find(taken_.begin(), taken_.end(), false);
    int slot = int(free - taken_.begin());
    if (free == taken_.end()) taken_.push_back(true);
    else *free = true;
    return slot;
  }
  void keep(int value) {
    slots_[size_t(value)] = new_slot();
    add({FusedStepKind::Keep});
    bind(0, -1, slots_[size_t(value)]);
  }
  // Makes a float32 operand of the last step. False: the value is not in memory, and is to be kept in the next attempt.
  bool read(int operand, const TracedOperand& o, double number) {
    if (o.value < 0) {
      numbers_.push_back(float(number));
      bind(operand, -1, -int(numbers_.size()));
      return true;
    }
    if (o.value < arguments_ && places_[size_t(o.value)].dtype == kFloat32) {
      bind(operand, o.value, 0);
      return true;
    }
    if (slots_[size_t(o.value)] < 0) {
      kept_.insert(o.value);
      return false;
    }
    bind(operand, -1, slots_[size_t(o.value)]);
    return true;
  }
  bool hold(const TracedOperand& o, double number) {
    if (o.value >= 0 && o.value == held_) return true;
    held_ = o.value;
    if (o.value >= 0 && o.value < arguments_) {
      add({FusedStepKind::Load, places_[size_t(o.value)].dtype});
      bind(0, o.value, 0);
      return true;
    }
    add({FusedStepKind::Load});
    return read(0, o, number);
  }

  Result compiled() {
    steps_.clear();
    bindings_.clear();
    numbers_.clear();
    taken_.clear();
    slots_.assign(last_.size(), -1);
    held_ = -1;
    known_ = true;
    for (int v : kept_)
      if (v < arguments_) {
        hold({.value = v}, 0);
        keep(v);
      }
    const int count = int(program_.ops.size());
    for (int i = 0; i < count && known_; ++i) {
      const TracedOp& op = program_.ops[size_t(i)];
      known_ = is_held(op.dtype) && is_held(op.out);
      if (!known_) break;
      auto number = [&](int k) { return op.in[k].absent ? op.p1 : op.in[k].number; };
      bool swapped = op.count == 2 && op.in[0].value != held_ && (op.in[1].value == held_ || op.in[0].value < 0) &&
                     op.in[1].value >= 0;
      if (!hold(op.in[swapped ? 1 : 0], number(swapped ? 1 : 0))) return Again;
      if (op.kind != TracedOp::Cast) {
        FusedStep& s = add({op.kind == TracedOp::Where ? FusedStepKind::Where
                            : op.count == 1            ? FusedStepKind::Unary
                            : op.count == 3            ? FusedStepKind::Lerp
                            : swapped                  ? FusedStepKind::Swapped
                                                       : FusedStepKind::Binary,
                            op.dtype, op.table});
        s.p0 = float(op.p0);
        s.p1 = float(op.p1);
        for (int k = 1; k < op.count; ++k)
          if (!read(k - 1, op.in[swapped ? 0 : k], number(swapped ? 0 : k))) return Again;
      } else if (op.out == kBool && op.dtype != kBool) {
        add({FusedStepKind::Binary, kFloat32, &ne_forward});
        read(0, {}, 0);
      }
      held_ = arguments_ + i;
      for (int k = 0; k < op.count; ++k)
        if (int v = op.in[k].value; v >= 0 && last_[size_t(v)] == i && slots_[size_t(v)] >= 0)
          taken_[size_t(slots_[size_t(v)])] = false;
      // the last one is rounded where it is stored
      if (pointwise::has_16_bits(op.out) && i + 1 < count) add({FusedStepKind::Round, op.out});
      if (kept_.count(held_)) keep(held_);
    }
    if (!known_) return Done;
    known_ = program_.result == held_;
    const bool aligned =
        reinterpret_cast<uintptr_t>(call_.out.data) % 64 == 0 && (walk_.ndim == 1 || row_ * 4 % 64 == 0 || !by_rows_);
    const bool streams = call_.out.dtype == kFloat32 && aligned && call_.out.numel() * 4 >= cpu::stream_bytes();
    add({streams ? FusedStepKind::Stream : FusedStepKind::Store, call_.out.dtype});
    slot_memory_ = take(int64_t(taken_.size()) * tile_ * 4);
    number_memory_ = take(int64_t(numbers_.size()) * tile_ * 4);
    out_memory_ = take(tile_ * 4);
    return Done;
  }

  // ---- running them

  void start(Thread& t) const {
    for (size_t i = 0; i < numbers_.size(); ++i)
      std::fill_n(reinterpret_cast<float*>(t.memory + number_memory_) + int64_t(i) * tile_, tile_, numbers_[i]);
    for (auto& b : bindings_)
      if (b.argument < 0)
        t.steps[size_t(b.step)].data[b.operand] =
            t.memory + (b.slot >= 0 ? slot_memory_ + int64_t(b.slot) * tile_ * 4
                                    : number_memory_ + int64_t(-1 - b.slot) * tile_ * 4);
    for (int v = 0; v < arguments_; ++v) {
      const Place& p = places_[size_t(v)];
      if (p.kind != Place::Widened) continue;
      auto* to = reinterpret_cast<float*>(t.memory + p.memory);
      const int64_t row = walk_.sizes[0];
      widen(to, program_.arguments[size_t(v)], call_.in[v].data, 1, row);
      for (int64_t i = row; i < p.count; ++i) to[i] = to[i - row];
    }
  }

  void run_steps(Thread& t, void* out, int64_t n) const {
    for (auto& b : bindings_)
      if (b.argument >= 0) t.steps[size_t(b.step)].data[b.operand] = t.at[size_t(b.argument)];
    t.steps.back().data[0] = out;
    offered_.run(t.steps.data(), n);
  }

  void run_piece(Thread& t, int64_t row, int64_t column, int64_t n) const {
    const int64_t first = row * row_ + column;
    for (int v = 0; v < arguments_; ++v) {
      if (last_[size_t(v)] < 0) continue;
      const Place& p = places_[size_t(v)];
      const DType dtype = program_.arguments[size_t(v)];
      const int64_t item = int64_t(size_of(dtype));
      const char* data = static_cast<const char*>(call_.in[v].data);
      char* memory = t.memory + p.memory;
      t.at[size_t(v)] = memory;
      if (p.kind == Place::Direct)
        t.at[size_t(v)] = data + (by_rows_ ? walk_.before_row(v, row) + column : first) * item;
      else if (p.kind == Place::Splat)
        widen(reinterpret_cast<float*>(memory), dtype, data + walk_.before_row(v, row) * item, 0, tile_);
      else if (p.kind == Place::Widened) t.at[size_t(v)] += (by_rows_ ? column : first % walk_.sizes[0]) * 4;
      else walk_.gather(v, size_t(item), memory, data, first, n);
    }
    const int64_t item = int64_t(size_of(call_.out.dtype)), whole = n / tile_ * tile_, rest = n - whole;
    char* out = static_cast<char*>(call_.out.data) + first * item;
    if (whole > 0) run_steps(t, out, whole);
    if (rest == 0) return;
    for (int v = 0; v < arguments_; ++v) {  // nothing beyond the end is read
      const Place& p = places_[size_t(v)];
      if (last_[size_t(v)] < 0 || p.kind == Place::Splat) continue;
      const int64_t bytes = int64_t(size_of(p.dtype));
      if (p.kind == Place::Direct)
        t.at[size_t(v)] =
            static_cast<char*>(std::memcpy(t.memory + p.memory, t.at[size_t(v)] + whole * bytes, size_t(rest * bytes)));
      else t.at[size_t(v)] += whole * bytes;
    }
    run_steps(t, t.memory + out_memory_, tile_);
    std::memcpy(out + whole * item, t.memory + out_memory_, size_t(rest * item));
  }

  const FusedCall& call_;
  const TracedProgram& program_;
  FusedWalk walk_;
  FusedSteps offered_;
  int arguments_;
  std::vector<int> last_;                                 // op that reads a value last; -1: none does
  int64_t tile_ = 0, row_ = 0, piece_ = 0, widened_ = 0;  // in elements; row: what a piece must not go beyond
  bool by_rows_ = false, known_ = true;
  std::vector<Place> places_;
  std::vector<FusedStep> steps_;
  std::vector<Binding> bindings_;
  std::vector<float> numbers_;
  std::vector<bool> taken_;
  std::vector<int> slots_;  // of each value that is kept
  std::set<int> kept_;
  int held_ = -1;                                                              // the value in the registers
  int64_t memory_ = 0, slot_memory_ = 0, number_memory_ = 0, out_memory_ = 0;  // of a thread, in bytes
};

}  // namespace

constinit KernelTable<FusedStepsQuery> fused_steps{"fuse_steps"};

bool run_in_registers(const FusedCall& c) {
  Chain chain(c);
  if (!chain.compile()) return false;
  chain.run();
  return true;
}

}  // namespace sf
