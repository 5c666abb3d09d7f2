#include "scaffolding/models/text_encoders/text_encoder.h"

#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/ops/ops.h"

namespace sf::models::video {

io::Fields TextEncoderConfig::fields() {
  return {{"vocab_size", &vocab_size},
          {"embed_dim", &embed_dim},
          {"num_layers", &num_layers},
          {"num_heads", &num_heads},
          {"max_length", &max_length}};
}

namespace {

// Beside tokens of variance 1: words that are told apart by what they are more than by where they stand.
constexpr double kPositionStd = 0.1;

TextEncoderConfig checked(TextEncoderConfig c) {
  const char* who = TextEncoder::kName;
  check_sizes(who, {{"vocab_size", c.vocab_size},
                    {"embed_dim", c.embed_dim},
                    {"num_heads", c.num_heads},
                    {"max_length", c.max_length}});
  check_num_layers(who, c.num_layers);
  SF_CHECK(c.embed_dim % c.num_heads == 0, who, ": num_heads must divide embed_dim, got ", c.num_heads, " and ",
           c.embed_dim);
  return c;
}

}  // namespace

TextEncoderLayer::TextEncoderLayer(const TextEncoderConfig& c)
    : norm1({c.embed_dim}),
      attn(c.embed_dim, {.heads = c.num_heads, .dim_head = c.embed_dim / c.num_heads}),
      norm2({c.embed_dim}),
      ff(c.embed_dim, {.activation_fn = "gelu-approximate"}) {}

Tensor TextEncoderLayer::forward(const Tensor& hidden_states, const Tensor& mask) const {
  auto layer = [this, mask](const Tensors& in) -> Tensors {
    const Tensor x = attn.beside(in[0], norm1(in[0]), {}, mask);
    return {ff.beside(x, norm2(x))};
  };
  return run(layer, {hidden_states})[0];
}

TextEncoder::TextEncoder(Config config)
    : ConfiguredModel(checked(std::move(config))),
      token_embedding(options.vocab_size, options.embed_dim),
      position_embedding(options.max_length, options.embed_dim),
      final_norm({options.embed_dim}) {
  nn::init::normal_(position_embedding.weight, 0, kPositionStd);
  for (int64_t i = 0; i < options.num_layers; ++i) layers.emplace_back(options);
}

Tensor TextEncoder::forward(const Tensor& input_ids, const Tensor& attention_mask) const {
  check_defined(kName, "input_ids", input_ids);
  SF_CHECK(input_ids.ndim() == 2 && input_ids.numel() > 0, kName, ": input_ids must be [B, tokens], got ",
           input_ids.shape());
  const int64_t tokens = input_ids.size(1);
  SF_CHECK(tokens <= options.max_length, kName, ": takes at most max_length=", options.max_length, " tokens, got ",
           tokens);
  check_shape(kName, "attention_mask", attention_mask, {input_ids.size(0), tokens});
  const Tensor places = arange(0, tokens, 1, kInt64, input_ids.device());
  Tensor x = token_embedding(input_ids) + position_embedding(places);
  const Tensor bias = attention_bias(kName, "attention_mask", attention_mask, x.dtype());
  for (auto& layer : layers) x = layer(x, bias);
  return final_norm(x);
}

SF_MODEL(TextEncoder)
    .doc("The ids of TextTokenizer [B, tokens] to vectors [B, tokens, embed_dim].")
    .forward<&TextEncoder::forward>("input_ids, attention_mask=None");

}  // namespace sf::models::video
