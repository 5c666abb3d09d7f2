#include "scaffolding/autograd/set_data.h"

#include <atomic>

namespace sf::autograd {

static std::atomic<uint64_t> moves{0};
uint64_t data_moves() { return moves; }

void set_data(const Tensor& target, const Tensor& source) {
  TensorImpl *to = target.impl(), *from = source.impl();
  SF_CHECK_AS(RuntimeError, !to->requires_grad || is_floating(from->dtype),
              "data: a tensor that requires a gradient cannot hold ", from->dtype);
  if (to->data != from->data) ++moves;
  to->storage = from->storage;
  to->data = from->data;
  to->offset = from->offset;
  to->numel = from->numel;
  to->sizes = from->sizes;
  to->strides = from->strides;
  to->device = from->device;
  to->dtype = from->dtype;
  to->contiguous = from->contiguous;
  to->base = {};
}

}  // namespace sf::autograd
