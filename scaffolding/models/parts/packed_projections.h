// Weights of projections that read the same input, side by side in memory, so that one product does them all where no gradient is recorded.
#pragma once
#include "scaffolding/models/parts/resnet.h"

namespace sf::models {

// Moves the weights and biases of each self-attention's to_q, to_k and to_v next to each other. The tensors keep their identity, names and values; those that
// lie so already stay where they are, and what hooks, Python or a quantised layer stand in for is left alone. Returns how many attentions are packed now.
int64_t pack_attention(nn::Module& model);
// The same for the time projections of residual blocks, with the biases of the convolutions that their results are added to.
void pack_time_projections(const std::vector<const ResnetBlock2D*>& blocks);

// Both, for whatever of them the model has.
void pack_projections(nn::Module& model);

// The tensors as one, along dimension 0, where they lie next to each other in this order and are contiguous; else absent. Not on the tape.
Tensor side_by_side(const Tensors& tensors);

}  // namespace sf::models
