// What constructors ask of a config, which may be a stranger's:
// it must neither fill the memory nor be too large for 64 bits when multiplied.
#pragma once
#include <initializer_list>
#include <utility>

#include "scaffolding/core/error.h"
#include "scaffolding/models/model.h"

namespace sf::models {

// ValueError naming the first that is not from 1 to kMostChannels.
void check_sizes(const char* who, std::initializer_list<std::pair<const char*, int64_t>> sizes);
void check_num_layers(const char* who, int64_t num_layers);  // from 1 to kMostLayers

// The channels of a transformer's tokens. Config: one with diffusers' fields.
template <class Config> int64_t token_channels(const Config& c) { return c.num_attention_heads * c.attention_head_dim; }

// Of a transformer over patches of pictures.
template <class Config> void check_patch_transformer(const char* who, const Config& c) {
  check_sizes(who, {{"num_attention_heads", c.num_attention_heads},
                    {"attention_head_dim", c.attention_head_dim},
                    {"in_channels", c.in_channels},
                    {"out_channels", c.out_channels.value_or(c.in_channels)},
                    {"patch_size", c.patch_size}});
  SF_CHECK(token_channels(c) % 4 == 0, who, ": num_attention_heads * attention_head_dim must be a multiple of 4, got ",
           token_channels(c));
  check_num_layers(who, c.num_layers);
  SF_CHECK(c.sample_size >= c.patch_size, who, ": patch_size must be at most sample_size, got ", c.patch_size, " and ",
           c.sample_size);
}

}  // namespace sf::models
