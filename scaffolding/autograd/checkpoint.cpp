#include "scaffolding/autograd/checkpoint.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/generator.h"

namespace sf::autograd {

namespace {

// One checkpointed call. The i-th tensor that fn's ops save has slot i: filled by the second run, freed when the op
// that wanted it lets go of it. Owned by the slots' holders, that is by the tape.
struct Frame {
  CheckpointFunction fn;
  std::vector<Saved> inputs;  // saved outside this frame's hooks: an enclosing checkpoint packs them in turn
  std::vector<uint8_t> rng;   // empty: not preserved
  Device rng_device;
  autocast::State autocast = autocast::state();  // the first run's: backward passes run without
  struct Slot {
    Shape shape;
    DType dtype;
    bool alive = true;
    Tensor value;
  };
  std::vector<Slot> slots;

  void recompute();
};

struct SlotHolder {
  std::shared_ptr<Frame> frame;
  size_t index;
  SlotHolder(std::shared_ptr<Frame> f, size_t i) : frame(std::move(f)), index(i) {}
  SlotHolder(const SlotHolder&) = delete;
  ~SlotHolder() {
    frame->slots[index].alive = false;
    frame->slots[index].value = {};
  }
};

// Puts a generator's state back, whatever happens in between.
class RngState {
 public:
  RngState(Generator g, const std::vector<uint8_t>& state)
      : generator_(std::move(g)), before_(generator_->get_state()) {
    generator_->set_state(state);
  }
  ~RngState() { generator_->set_state(before_); }

 private:
  Generator generator_;
  std::vector<uint8_t> before_;
};

void Frame::recompute() {
  EnableGrad on;
  autocast::Within as_before(autocast);
  Tensors again;
  for (auto& s : inputs) again.push_back(s.get());
  std::optional<RngState> restore;
  if (!rng.empty()) restore.emplace(default_generator(rng_device), rng);
  size_t next = 0;
  SavedTensorHooks collect([&](const Tensor& t) -> std::function<Tensor()> {
    SF_CHECK_AS(RuntimeError, next < slots.size() && slots[next].shape == t.shape() && slots[next].dtype == t.dtype(),
                "checkpoint: the second run saved ", t.dtype(), t.shape(), " as tensor ", next, ", the first ",
                next < slots.size() ? str(slots[next].shape) : std::string("nothing"),
                "; fn must do the same each time");
    if (slots[next].alive) slots[next].value = t;
    ++next;
    return [] { return Tensor(); };  // this run's graph is never walked
  });
  fn(again);
  SF_CHECK_AS(RuntimeError, next == slots.size(), "checkpoint: the second run saved ", next, " tensors, the first ",
              slots.size(), "; fn must do the same each time");
}

}  // namespace

Tensors checkpoint(CheckpointFunction fn, const Tensors& inputs, CheckpointOptions options) {
  if (!grad_enabled()) return fn(inputs);
  auto frame = std::make_shared<Frame>();
  frame->fn = std::move(fn);
  frame->inputs = save(inputs);
  if (options.preserve_rng_state) {
    for (auto& x : inputs)
      if (x && x.device().is_cuda()) frame->rng_device = x.device();
    frame->rng = default_generator(frame->rng_device)->get_state();
  }
  SavedTensorHooks forget([frame](const Tensor& t) -> std::function<Tensor()> {
    size_t index = frame->slots.size();
    frame->slots.push_back({t.shape(), t.dtype()});
    return [holder = std::make_shared<SlotHolder>(frame, index)] {
      Frame& f = *holder->frame;
      if (!f.slots[holder->index].value) f.recompute();
      return f.slots[holder->index].value;
    };
  });
  return frame->fn(inputs);
}

OffloadSaved::OffloadSaved(OffloadOptions options)
    : SavedTensorHooks([options](const Tensor& t) -> std::function<Tensor()> {
        bool narrower = options.dtype && is_floating(t.dtype()) && size_of(*options.dtype) < size_of(t.dtype());
        if (int64_t(t.nbytes()) < options.min_bytes || (t.device() == options.device && !narrower)) return nullptr;
        NoGrad off;
        Tensor packed = (narrower ? t.to(*options.dtype) : t).to(options.device);
        return [packed, dtype = t.dtype(), device = t.device()] {
          NoGrad off;
          return packed.to(device).to(dtype);
        };
      }) {}

Tensors checkpoint_offload(const CheckpointFunction& fn, const Tensors& inputs, OffloadOptions options) {
  OffloadSaved moved(options);
  return fn(inputs);
}

}  // namespace sf::autograd
