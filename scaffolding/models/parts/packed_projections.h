// Weights of projections that read the same input, side by side in memory,
// so that one product does them all where no gradient is recorded.
#pragma once
#include "scaffolding/nn/module.h"

namespace sf::models {

// A part that has such weights says so by this base, and pack_projections asks it, whatever model it belongs to.
struct PackedPart {
  virtual ~PackedPart() = default;
  virtual bool pack() = 0;  // whether they lie side by side now
};

// Asks every part of the model. Tensors keep their identity, names and values; those that lie so already stay where
// they are, and what hooks, Python or an unknown module stand in for is left alone.
// Returns how many parts are packed now.
int64_t pack_projections(nn::Module& model);

// The tensors as one, along dimension 0, where they lie next to each other in this order and are contiguous; else
// absent. Not on the tape.
Tensor side_by_side(const Tensors& tensors);
// Moves the tensors of each list next to each other; empty lists are passed over. False, and nothing moves,
// where one's are of several kinds.
bool lay_side_by_side(const std::vector<Tensors>& lists);

}  // namespace sf::models
