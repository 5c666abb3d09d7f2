#include "scaffolding/models/parts/kept_table.h"

#include <algorithm>
#include <memory>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

Tensor KeptTable::of(const Shape& size, const Tensor& like, DType dtype, const std::function<Tensor()>& make) const {
  std::lock_guard guard(lock_);
  auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) {
    return k.size == size && k.table.device() == like.device() && k.table.dtype() == dtype;
  });
  if (found == kept_.end()) {
    autograd::NoGrad off;
    kept_.push_front({size, make().to(like.device()).to(dtype)});
    if (kept_.size() > kMost) kept_.pop_back();
  } else {
    kept_.splice(kept_.begin(), kept_, found);
  }
  const Tensor table = kept_.front().table;
  if (auto* graph = cuda::CudaGraph::recording()) graph->keep_alive(std::make_shared<Tensor>(table));
  return table;
}

}  // namespace sf::models
