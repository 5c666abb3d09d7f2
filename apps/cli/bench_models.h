// The models that `scaffolding bench` knows: a line each in bench_models.cpp.
#pragma once
#include <functional>
#include <span>

#include "scaffolding/nn/module.h"

namespace sf::cli {

struct BenchModel {
  const char* name;
  const char* what;  // and the size of what goes in
  // The model with random weights, and one pass on a batch.
  std::function<void()> (*prepare)(DType dtype, int64_t batch);
};
std::span<const BenchModel> bench_models();

}  // namespace sf::cli
