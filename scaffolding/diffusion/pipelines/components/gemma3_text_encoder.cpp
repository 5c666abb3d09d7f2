// Gemma 3's layers as a part of pipelines.
#include "scaffolding/diffusion/pipelines/stacked_states.h"
#include "scaffolding/models/text_encoders/gemma3.h"
#include "scaffolding/nn/looked_at.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

class Gemma3TextEncoder final : public ModelComponent<TextEncoder, models::Gemma3TextModel>, public StacksStates {
 public:
  using ModelComponent::ModelComponent;
  Output encode(const Tensor& input_ids, const Tensor& attention_mask) override {
    Tensors all = (*model_)(input_ids, attention_mask, Tensor(), Tensor(), true);
    return {.last_hidden_state = all.at(0), .text_embeds = {}, .hidden_states = {all.begin() + 1, all.end()}};
  }
  Tensor stacked_hidden_states(const Tensor& input_ids, const Tensor& attention_mask) override {
    if (nn::is_looked_at(*model_)) return stack(encode(input_ids, attention_mask).hidden_states, -1).flatten(2);
    return model_->stacked_hidden_states(input_ids, attention_mask);
  }
  Tensor final_layer_norm(const Tensor& hidden_state) override { return model_->norm(hidden_state); }
};
SF_COMPONENT(TextEncoder, models::Gemma3TextModel, Gemma3TextEncoder);

}  // namespace

}  // namespace sf::diffusion
