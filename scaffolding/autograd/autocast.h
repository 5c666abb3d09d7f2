// autocast: while in force on a thread, ops of the table in autocast.def run in its dtype or in float32, whatever their
// inputs are. The casts are on the tape: gradients arrive in the inputs' own types. float64 is left alone.
//   { Autocast on(Device::CPU, {.dtype = kBFloat16});  loss = mse_loss(net(x), y); }
//   loss.backward();     // backward passes run without autocast, in the types of the forward pass
// Thread-local. Casts of parameters are kept until the outermost scope ends, so that each is made once.
#pragma once
#include <string_view>

#include "scaffolding/core/tensor.h"

namespace sf::autocast {

enum class Policy : uint8_t { Own, Lower, Float32, Widest };

struct Entry {
  std::string_view op;
  Policy cpu, cuda;
};
inline constexpr Entry kTable[] = {
#define SF_AUTOCAST_OP(op, cpu, cuda) {#op, Policy::cpu, Policy::cuda},
#include "scaffolding/autograd/autocast.def"
#undef SF_AUTOCAST_OP
};
// The entry of an op, or -1.
consteval int entry_of(std::string_view op) {
  int i = 0;
  for (const Entry& e : kTable) {
    if (e.op == op) return i;
    ++i;
  }
  return -1;
}

struct DeviceState {
  bool enabled = false;
  DType dtype = kBFloat16;
};
struct State {
  bool any = false;  // a device is enabled
  bool cache = true;
  DeviceState cpu{false, kBFloat16}, cuda{false, kFloat16};
};
namespace detail {
extern constinit thread_local State state __attribute__((tls_model("initial-exec")));
}
inline bool active() { return detail::state.any; }

// The settings of this thread; mps counts as the CPU.
DeviceState& of(DeviceType device);
const State& state();
void set(const State& state);

struct Options {
  std::optional<DType> dtype;  // float16 or bfloat16; without one, the device's: bfloat16 on CPU, float16 on CUDA
  bool enabled = true;
  bool cache_enabled = true;
};
// In force while it lives. The two halves serve Python's context manager.
State enter(Device device, const Options& options);
void leave(const State& before);
class Autocast {
 public:
  explicit Autocast(Device device, const Options& options = {}) : before_(enter(device, options)) {}
  ~Autocast() { leave(before_); }
  Autocast(const Autocast&) = delete;

 private:
  State before_;
};
// Another thread's or an earlier state, or none: for what is run later or elsewhere (backward passes, checkpoints).
class Within {
 public:
  explicit Within(const State& s) : before_(detail::state) { detail::state = s; }
  Within() : Within(State{}) {}
  ~Within() { detail::state = before_; }
  Within(const Within&) = delete;

 private:
  State before_;
};

// ---- for ops
namespace detail {
Tensor cast(const Tensor& t, Device device, DType to);
DType widest(DType a, const Tensor& t, Device device);

inline const Tensor* first_of(const Tensor& t) { return t ? &t : nullptr; }
inline const Tensor* first_of(const Tensors& ts) { return !ts.empty() && ts[0] ? &ts[0] : nullptr; }
template <class T> const Tensor* first_of(const T&) { return nullptr; }
template <class T, class U, class... Rest> const Tensor* first_of(const T& a, const U& b, const Rest&... rest) {
  const Tensor* t = first_of(a);
  return t ? t : first_of(b, rest...);
}

inline void widen(DType& to, const Tensor& t, Device d) { to = widest(to, t, d); }
inline void widen(DType& to, const Tensors& ts, Device d) {
  for (const Tensor& t : ts) to = widest(to, t, d);
}
template <class T> void widen(DType&, const T&, Device) {}

inline Tensor converted(const Tensor& t, Device d, DType to) { return cast(t, d, to); }
inline Tensors converted(const Tensors& ts, Device d, DType to) {
  Tensors out;
  for (const Tensor& t : ts) out.push_back(cast(t, d, to));
  return out;
}
template <class T> const T& converted(const T& other, Device, DType) { return other; }

struct Plan {
  Policy policy;
  Device device;
  DType to;
};
Plan plan(const Entry& entry, const Tensor* first);
}  // namespace detail

// f(args...) with the tensors among args in the types of the policy, and without autocast inside.
template <class F, class... A> auto run(detail::Plan plan, F f, const A&... args) {
  if (plan.policy == Policy::Widest) (detail::widen(plan.to, args, plan.device), ...);
  struct Off {
    Off() { detail::state.any = false; }
    ~Off() { detail::state.any = true; }
  } off;
  return f(detail::converted(args, plan.device, plan.to)...);
}

// First line of an op of the table, with its arguments. Costs one load when autocast is off.
#define SF_AUTOCAST(fn, ...)                                                                       \
  static_assert(::sf::autocast::entry_of(#fn) >= 0, "autograd/autocast.def does not list the op"); \
  SF_AUTOCAST_IF_LISTED(fn, __VA_ARGS__)
#define SF_AUTOCAST_IF_LISTED(fn, ...)                                                                \
  if constexpr (constexpr int sf_entry = ::sf::autocast::entry_of(#fn); sf_entry >= 0)                \
    if (::sf::autocast::active()) [[unlikely]]                                                        \
      if (auto sf_plan = ::sf::autocast::detail::plan(::sf::autocast::kTable[sf_entry],               \
                                                      ::sf::autocast::detail::first_of(__VA_ARGS__)); \
          sf_plan.policy != ::sf::autocast::Policy::Own)                                              \
  return ::sf::autocast::run(                                                                         \
      sf_plan, [](const auto&... args) { return fn(args...); }, __VA_ARGS__)

}  // namespace sf::autocast
