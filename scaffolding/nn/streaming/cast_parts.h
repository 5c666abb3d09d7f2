// CastParts: weights that are of another dtype within the calls of the part of a model that they belong to, and as they
// are stored between them. A part is a group of StreamLevel::Leaf, or a layer that is in none.
#pragma once
#include <memory>
#include <unordered_map>

#include "scaffolding/nn/streaming/residence.h"

namespace sf::nn {

class CastParts {
 public:
  CastParts(Module& model, DType compute, ResidenceOrder order = ResidenceOrder::First);
  ~CastParts();  // weights are as they are stored
  CastParts(const CastParts&) = delete;
  CastParts& operator=(const CastParts&) = delete;

  // Whether a parameter is read past the calls of its part (ReadsBelow), or is two layers': no call can convert it.
  bool is_read_elsewhere(const Tensor& t) const;
  void add(const NamedModule& layer, const Tensor& t);  // of this layer of the model, from its next call on
  int64_t tensors() const;
  const std::vector<ResidencePlace>& places() const { return places_; }

 private:
  struct Part;
  Module* caller_of(Module* m) const;
  DType compute_;
  ResidenceOrder order_;
  std::unordered_map<TensorImpl*, Module*> leaf_of_;
  std::unordered_map<TensorImpl*, int> uses_;
  std::unordered_map<Module*, Module*> parents_;
  std::unordered_map<Module*, std::unique_ptr<Part>> parts_;
  std::vector<ResidencePlace> places_;
};

}  // namespace sf::nn
