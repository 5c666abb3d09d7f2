#include "scaffolding/train/text_to_video/model.h"

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/cogvideox/training.h"
#include "scaffolding/diffusion/pipelines/tora/training.h"
#include "scaffolding/models/autoencoders/autoencoder_kl_cogvideox.h"
#include "scaffolding/ops/ops.h"

namespace sf::train {

TextToVideoModel::TextToVideoModel(std::shared_ptr<models::T5EncoderModel> text,
                                   std::shared_ptr<models::CogVideoXTransformer3DModel> denoiser)
    : text_encoder(std::move(text)), transformer(std::move(denoiser)) {}

models::ToraTransformer3DModel* TextToVideoModel::steered() const {
  return dynamic_cast<models::ToraTransformer3DModel*>(transformer.get());
}

Tensor TextToVideoModel::predict(const Tensor& noisy, const Tensor& timesteps, const Tensor& text, const Tensor& flow,
                                 int64_t unsteered, const Tensor& positions) const {
  const auto* tora = steered();
  const int64_t batch = noisy.size(0), told = tora && flow ? batch - unsteered : 0;
  const auto part = [&](int64_t begin, int64_t count, const Tensor& steering) {
    const auto of = [&](const Tensor& t) { return t.narrow(0, begin, count); };
    const diffusion::TrainedModel denoiser = tora ? diffusion::trained_tora(*tora, steering, {}, positions)
                                                  : diffusion::trained_cogvideox(*transformer, {}, positions);
    return denoiser(of(noisy), of(timesteps), of(text));
  };
  if (told == 0) return part(0, batch, {});
  if (told == batch) return part(0, batch, flow);
  return cat({part(0, told, flow.narrow(0, 0, told)), part(told, batch - told, {})}, 0);
}

models::T5Config text_encoder_config(const VideoRecipe& recipe, const tokenizers::Tokenizer& tokenizer) {
  models::T5Config text;
  io::read_fields("text_encoder", text.fields(), recipe.text_encoder);
  text.vocab_size = int64_t(tokenizer.size());
  const auto id = [&](const std::optional<tokenizers::AddedToken>& token) {
    return token ? tokenizer.token_to_id(token->content) : std::optional<int64_t>();
  };
  text.pad_token_id = id(tokenizer.config().pad_token);
  text.eos_token_id = id(tokenizer.config().eos_token);
  return text;
}

std::shared_ptr<models::CogVideoXTransformer3DModel> make_transformer(const VideoRecipe& r) {
  models::AutoencoderKLCogVideoXConfig vae;
  io::read_fields("vae", vae.fields(), r.vae);
  models::T5Config text;
  io::read_fields("text_encoder", text.fields(), r.text_encoder);
  models::ToraTransformer3DConfig c;
  io::read_fields("transformer", c.fields(), r.transformer);
  const int64_t scale = int64_t(1) << (vae.block_out_channels.size() - 1);
  c.in_channels = c.out_channels = c.flow_in_channels = vae.latent_channels;
  c.text_embed_dim = text.d_model;
  c.max_text_seq_length = r.max_tokens;
  c.sample_frames = r.data.num_frames;
  c.sample_height = r.data.height / scale;
  c.sample_width = r.data.width / scale;
  c.temporal_compression_ratio = vae.temporal_compression_ratio;
  std::shared_ptr<models::CogVideoXTransformer3DModel> made;
  if (r.steered()) {
    auto tora = std::make_shared<models::ToraTransformer3DModel>(c);
    tora->set_trainable(r.denoiser.trainable);
    made = tora;
  } else {
    made = std::make_shared<models::CogVideoXTransformer3DModel>(c);
  }
  if (r.denoiser.gradient_checkpointing) made->enable_gradient_checkpointing();
  return made;
}

}  // namespace sf::train
