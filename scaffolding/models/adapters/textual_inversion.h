// Textual inversion: a learned concept as vectors of a text encoder's table of tokens. Files of diffusers, of the
// Stable Diffusion web UI and of Stable Diffusion XL's trainers.
#pragma once
#include <string>
#include <vector>

#include "scaffolding/io/checkpoint.h"

namespace sf::models {

struct ConceptVectors {
  std::string name;  // what the file calls them: a token ("<cat-toy>"), "clip_l", "clip_g"; "" where it says nothing
  Tensor vectors;    // [n, features], n >= 1
};

// The vectors of each text encoder that the file is for; most are for one. path: for errors. ValueError for a file that
// holds something else, and for values that are NaN or infinite.
std::vector<ConceptVectors> read_textual_inversion(const io::Checkpoint& file, const std::string& path);

}  // namespace sf::models
