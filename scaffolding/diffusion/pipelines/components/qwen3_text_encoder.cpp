// Qwen3's layers as a part of pipelines.
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/components.h"
#include "scaffolding/models/text_encoders/qwen3.h"

namespace sf::diffusion {

namespace {

class Qwen3TextEncoder final : public ModelComponent<TextEncoder, models::Qwen3Model> {
 public:
  using ModelComponent::ModelComponent;
  Output encode(const Tensor& input_ids, const Tensor& attention_mask) override {
    Tensors all = (*model_)(input_ids, attention_mask, Tensor(), Tensor(), true);
    return {.last_hidden_state = all.at(0), .text_embeds = {}, .hidden_states = {all.begin() + 1, all.end()}};
  }
  Tensor final_layer_norm(const Tensor& hidden_state) override { return model_->norm(hidden_state); }
};
SF_COMPONENT(TextEncoder, models::Qwen3Model, Qwen3TextEncoder);

}  // namespace

}  // namespace sf::diffusion
