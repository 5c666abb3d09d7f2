// CLIP's text encoders as parts of pipelines.
#include "scaffolding/diffusion/pipelines/components.h"
#include "scaffolding/models/text_encoders/clip.h"

namespace sf::diffusion {

namespace {

template <class M> class ClipTextEncoder final : public ModelComponent<TextEncoder, M> {
 public:
  using ModelComponent<TextEncoder, M>::ModelComponent;
  TextEncoder::Output encode(const Tensor& input_ids, const Tensor& attention_mask) override {
    constexpr bool projects = std::is_same_v<M, models::CLIPTextModelWithProjection>;
    Tensors all = (*this->model_)(input_ids, attention_mask, Tensor(), true);
    TextEncoder::Output out;
    out.last_hidden_state = all[projects ? 1 : 0];
    (projects ? out.text_embeds : out.pooler_output) = all[projects ? 0 : 1];
    out.hidden_states.assign(all.begin() + 2, all.end());
    return out;
  }
  Tensor final_layer_norm(const Tensor& hidden_state) override {
    return this->model_->text_model.final_layer_norm(hidden_state);
  }
};

SF_COMPONENT(TextEncoder, models::CLIPTextModel, ClipTextEncoder<models::CLIPTextModel>);
SF_COMPONENT(TextEncoder, models::CLIPTextModelWithProjection, ClipTextEncoder<models::CLIPTextModelWithProjection>);

}  // namespace

}  // namespace sf::diffusion
