// KeptTable: numbers that depend on a size alone, positions say, which a forward makes on the host. Kept where it
// computes for the next calls, so that a step copies nothing, and captured graphs hold the ones that they read.
#pragma once
#include <functional>
#include <list>
#include <mutex>

#include "scaffolding/core/tensor.h"

namespace sf::models {

class KeptTable {
 public:
  // make() on the device of `like`; `dtype` after that. For one size make() is always the same.
  Tensor of(const Shape& size, const Tensor& like, DType dtype, const std::function<Tensor()>& make) const;

 private:
  static constexpr size_t kMost = 4;  // sizes; the one that was longest without use goes first
  struct Kept {
    Shape size;
    Tensor table;
  };
  mutable std::mutex lock_;
  mutable std::list<Kept> kept_;  // the last used first
};

}  // namespace sf::models
