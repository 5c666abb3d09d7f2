// Whether ops record. Thread-local; the engine switches it off while it runs closures (unless create_graph).
#pragma once

namespace sf::autograd {

namespace detail {
struct Mode {
  bool grad = true;
  bool inference = false;
  bool anomaly = false;  // see anomaly.h
};
extern constinit thread_local Mode mode __attribute__((tls_model("initial-exec")));
}  // namespace detail

inline bool grad_enabled() { return detail::mode.grad; }
inline bool inference_mode_enabled() { return detail::mode.inference; }

// Scope guards: NoGrad g; GradMode g(true); InferenceMode g;
class GradMode {
 public:
  explicit GradMode(bool on) : was_(detail::mode.grad) { detail::mode.grad = on; }
  ~GradMode() { detail::mode.grad = was_; }
  GradMode(const GradMode&) = delete;

 private:
  bool was_;
};
struct NoGrad : GradMode {
  NoGrad() : GradMode(false) {}
};
struct EnableGrad : GradMode {
  EnableGrad() : GradMode(true) {}
};
class InferenceMode {
 public:
  explicit InferenceMode(bool on = true) : was_(detail::mode) {
    detail::mode.inference = on;
    if (on) detail::mode.grad = false;
  }
  ~InferenceMode() { detail::mode = was_; }
  InferenceMode(const InferenceMode&) = delete;

 private:
  detail::Mode was_;
};

}  // namespace sf::autograd
