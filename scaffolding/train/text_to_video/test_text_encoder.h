// The text encoder of the tests of what trains one: a layer, without dropout, 20 words.
#pragma once
#include "scaffolding/models/text_encoders/t5.h"

namespace sf::train {

inline std::shared_ptr<models::T5EncoderModel> small_text_encoder(int64_t d_model) {
  models::T5Config text;
  text.vocab_size = 20;
  text.d_model = d_model;
  text.d_kv = d_model / 4;
  text.d_ff = d_model * 3 / 2;
  text.num_layers = 1;
  text.num_heads = 4;
  text.dropout_rate = 0;
  return std::make_shared<models::T5EncoderModel>(text);
}

}  // namespace sf::train
