#include "scaffolding/diffusion/pipelines/stacked_states.h"

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Tensor stacked_hidden_states(TextEncoder& encoder, const Tensor& input_ids, const Tensor& attention_mask) {
  if (auto* stacks = dynamic_cast<StacksStates*>(&encoder))
    return stacks->stacked_hidden_states(input_ids, attention_mask);
  const TextEncoder::Output all = encoder.encode(input_ids, attention_mask);
  SF_CHECK(!all.hidden_states.empty(), "text encoder: gives no hidden states of its layers");
  return stack(all.hidden_states, -1).flatten(2);
}

}  // namespace sf::diffusion
