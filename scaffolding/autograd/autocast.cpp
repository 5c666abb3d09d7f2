#include "scaffolding/autograd/autocast.h"

#include <unordered_map>

#include "scaffolding/autograd/tape.h"

namespace sf::autocast {

namespace detail {
constinit thread_local State state __attribute__((tls_model("initial-exec")));
}

namespace {

// Casts of parameters made in this thread's scopes. The source is held, so that its address stays its own.
struct Kept {
  Tensor source, result;
  uint32_t version;
  bool recorded;
};
struct Cache {
  std::unordered_map<const TensorImpl*, Kept> casts;
  int depth = 0;  // of scopes
};
Cache& cache() {
  static thread_local Cache c;
  return c;
}

// A conversion that can be walked again: the cast of a parameter is shared by all that is computed within a scope, of
// which there may be several backward passes.
class CastNode final : public autograd::Node {
 public:
  explicit CastNode(DType from) : Node("autocast"), from_(from) {}
  Tensors apply(Tensors& dys) override { return {dys[0].to(from_)}; }
  void release_saved() override {}

 private:
  DType from_;
};

Tensor shared_cast(const Tensor& t, DType to) {
  Tensor y;
  {
    autograd::NoGrad off;
    y = t.to(to);
  }
  if (!autograd::any_requires_grad({t})) return y;
  auto node = Ref<autograd::Node>::fresh(new CastNode(t.dtype()));
  autograd::detail::connect(node.get(), {t});
  autograd::detail::attach(std::move(node), y, 0);
  return y;
}

}  // namespace

DeviceState& of(DeviceType device) { return device == DeviceType::CUDA ? detail::state.cuda : detail::state.cpu; }
const State& state() { return detail::state; }
void set(const State& s) {
  detail::state = s;
  detail::state.any = s.cpu.enabled || s.cuda.enabled;
}

State enter(Device device, const Options& options) {
  SF_CHECK(!device.is_meta(), "autocast: device must be cpu or cuda, got ", device);
  State before = detail::state, now = before;
  DeviceState& d = device.is_cuda() ? now.cuda : now.cpu;
  if (options.dtype)
    SF_CHECK_AS(TypeError, is_reduced(*options.dtype), "autocast: dtype must be bfloat16 or float16, got ",
                *options.dtype, "; pass enabled=False for float32");
  d = {options.enabled, options.dtype.value_or(d.dtype)};
  now.cache = options.cache_enabled;
  set(now);
  ++cache().depth;
  return before;
}

void leave(const State& before) {
  detail::state = before;
  if (--cache().depth == 0) cache().casts.clear();
}

namespace detail {

Plan plan(const Entry& entry, const Tensor* first) {
  if (!first) return {Policy::Own, {}, kFloat32};
  Device device = first->device();
  const DeviceState& d = device.is_cuda() ? state.cuda : state.cpu;
  if (!d.enabled || device.is_meta()) return {Policy::Own, device, kFloat32};
  Policy p = device.is_cuda() ? entry.cuda : entry.cpu;
  return {p, device, p == Policy::Float32 ? kFloat32 : d.dtype};
}

static bool eligible(const Tensor& t, Device device) {
  return t && is_floating(t.dtype()) && t.dtype() != kFloat64 && t.device().type == device.type && !t.impl()->is_scalar;
}

DType widest(DType a, const Tensor& t, Device device) {
  if (!eligible(t, device) || a == kFloat32) return a;
  if (t.dtype() == kFloat32) return kFloat32;
  return a == t.dtype() ? a : kFloat32;  // float16 and bfloat16 meet in float32
}

Tensor cast(const Tensor& t, Device device, DType to) {
  if (!eligible(t, device) || t.dtype() == to) return t;
  bool keep = state.cache && cache().depth > 0 && t.dtype() == kFloat32 && is_reduced(to) && t.impl()->requires_grad &&
              t.is_leaf() && !t.impl()->base && !autograd::inference_mode_enabled();
  if (!keep) return t.to(to);
  bool recorded = autograd::grad_enabled();
  Kept& kept = cache().casts[t.impl()];
  if (!kept.source || kept.version != t.version() || kept.recorded != recorded || kept.result.dtype() != to)
    kept = {t, shared_cast(t, to), t.version(), recorded};
  return kept.result;
}

}  // namespace detail

}  // namespace sf::autocast
