#include "scaffolding/models/parts/attention_keys.h"

#include <string_view>
#include <utility>

namespace sf::models {

std::string current_attention_key(const std::string& key) {
  if (key.find("attentions.") == std::string::npos) return key;
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {".query.", ".to_q."}, {".key.", ".to_k."}, {".value.", ".to_v."}, {".proj_attn.", ".to_out.0."}};
  for (auto& [old, now] : kNames)
    if (const size_t at = key.find(old); at != std::string::npos)
      return key.substr(0, at) + std::string(now) + key.substr(at + old.size());
  return key;
}

}  // namespace sf::models
