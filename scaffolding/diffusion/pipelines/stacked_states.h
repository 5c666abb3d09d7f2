// The hidden states of all layers of a text encoder in one tensor, as LTX-2's connectors read them.
#pragma once
#include "scaffolding/diffusion/pipelines/components.h"

namespace sf::diffusion {

// A text encoder that writes each state where it belongs as soon as it is there, so that none is in memory twice. What
// attention_mask hides in all texts is not computed where nothing that is seen depends on it, and is zeros.
class StacksStates {
 public:
  virtual ~StacksStates() = default;
  virtual Tensor stacked_hidden_states(const Tensor& input_ids, const Tensor& attention_mask) = 0;
};

// TextEncoder::Output's hidden_states in one tensor [B, L, features * states] (49 states of Gemma 3 12B, the embeddings
// first): for each feature the first state's, the second one's, ... input_ids[B, L] on the encoder's device, padded on
// either side; attention_mask[B, L]: 1 for tokens, 0 for padding; absent: no padding. In the encoder's dtype.
// Of an encoder that is no StacksStates, or whose calls are seen by hooks or Python, states are put together at the
// end.
Tensor stacked_hidden_states(TextEncoder& encoder, const Tensor& input_ids, const Tensor& attention_mask);

}  // namespace sf::diffusion
