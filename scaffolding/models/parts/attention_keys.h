// Names of attention's tensors in files from before Attention had its names.
#pragma once
#include <string>

namespace sf::models {

// The key of today for one below "attentions.": query, key, value and proj_attn were to_q, to_k, to_v and to_out.0.
std::string current_attention_key(const std::string& file_key);

}  // namespace sf::models
