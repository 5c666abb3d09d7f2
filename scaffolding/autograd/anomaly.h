// detect_anomaly: names the op that made the first NaN or Inf, in forward or backward, with shapes. Every recorded op
// is checked, one more pass over its results: for debugging. Per thread.
//   A NaN in a result is an error. An Inf is one only where every input was finite, so that masks of -inf pass.
#pragma once
#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/tensor.h"

namespace sf::autograd {

inline bool anomaly_detection_enabled() { return detail::mode.anomaly; }

class AnomalyMode {
 public:
  explicit AnomalyMode(bool on = true) : was_(detail::mode.anomaly) { detail::mode.anomaly = on; }
  ~AnomalyMode() { detail::mode.anomaly = was_; }
  AnomalyMode(const AnomalyMode&) = delete;

 private:
  bool was_;
};

// How many elements are NaN or infinite; none for integers and for meta tensors.
struct NonFinite {
  int64_t nan = 0, inf = 0;
  explicit operator bool() const { return nan || inf; }
};
NonFinite count_non_finite(const Tensor& t);

// RuntimeErrors that name the op. Tensors may be absent.
void check_forward_finite(const char* op, const Tensors& outputs, const Tensors& inputs);
void check_backward_finite(const char* op, const Tensors& output_gradients, const Tensors& input_gradients);

}  // namespace sf::autograd
