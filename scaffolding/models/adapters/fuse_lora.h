// Adapters within the weights themselves.
#pragma once
#include <map>

#include "scaffolding/models/parts/lora.h"

namespace sf::models {

// The weight that adapters may be summed into; absent for layers that are quantised.
Tensor fused_weight(nn::Module& layer);

struct WeightUpdate {
  std::string name;  // of the module
  nn::Module* layer = nullptr;
  Tensor weight;
  std::vector<LoraTerm> terms;
};
// weight += scale * sum of the terms, summed in float32 and rounded once. What the weights were, by name, in host
// memory. safe: ValueError, before anything changes, where a sum is NaN or infinite.
std::map<std::string, Tensor> fuse_lora(const std::vector<WeightUpdate>& updates, double scale, bool safe);
// {weight, what it was}: to the byte. ValueError, before anything changes, where there is no such weight now.
void put_back(const std::vector<std::pair<Tensor, Tensor>>& weights);

}  // namespace sf::models
