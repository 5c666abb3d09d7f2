// T5's encoder as a part of pipelines.
#include "scaffolding/diffusion/pipelines/components.h"
#include "scaffolding/models/text_encoders/t5.h"

namespace sf::diffusion {

namespace {

class T5TextEncoder final : public ModelComponent<TextEncoder, models::T5EncoderModel> {
 public:
  using ModelComponent::ModelComponent;
  Output encode(const Tensor& input_ids, const Tensor& attention_mask) override {
    return {.last_hidden_state = (*model_)(input_ids, attention_mask, Tensor(), false).at(0)};
  }
  Tensor final_layer_norm(const Tensor& hidden_state) override {
    return model_->encoder.final_layer_norm(hidden_state);
  }
};
SF_COMPONENT(TextEncoder, models::T5EncoderModel, T5TextEncoder);

}  // namespace

}  // namespace sf::diffusion
