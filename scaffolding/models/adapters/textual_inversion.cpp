#include "scaffolding/models/adapters/textual_inversion.h"

#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/models/adapters/lora_file.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

constexpr int64_t kMostVectors = 1024, kMostFeatures = 1 << 16;

// The web UI's: its .pt has the vectors in string_to_param, by the token "*", its .safetensors as emb_params.
bool is_webui(const std::string& name) { return name == "emb_params" || name.starts_with("string_to_param."); }

}  // namespace

std::vector<ConceptVectors> read_textual_inversion(const io::Checkpoint& file, const std::string& path) {
  std::vector<io::CheckpointEntry> found;
  const std::vector<io::CheckpointEntry> entries = file.entries();
  for (auto& entry : entries)
    if (is_webui(entry.name)) found.push_back(entry);
  const bool webui = !found.empty();
  if (!webui) found = entries;
  SF_CHECK(!found.empty() && (webui ? found.size() == 1 : found.size() <= 3), path,
           ": is no textual inversion: it has ", found.size(), " tensors",
           found.empty() ? "" : ", '" + found[0].name + "' among them",
           ", where one for each text encoder was expected");
  std::vector<ConceptVectors> out;
  for (auto& entry : found) {
    const Shape& shape = entry.shape;
    SF_CHECK((shape.size() == 1 || shape.size() == 2) && shape[0] >= 1 && shape.back() >= 1 &&
                 shape.back() <= kMostFeatures && (shape.size() == 1 || shape[0] <= kMostVectors),
             path, ": is no textual inversion: '", entry.name, "' is ", shape,
             ", where [vectors, features] was expected");
    Tensor vectors = file.get(entry.name);
    SF_CHECK(is_floating(vectors.dtype()), path, ": '", entry.name, "' is ", vectors.dtype(),
             ", where a floating dtype was expected");
    SF_CHECK(all_finite(vectors), path, ": '", entry.name, "' has NaN or infinity, so the file is damaged");
    if (vectors.dim() == 1) vectors = vectors.unsqueeze(0);
    out.push_back({webui ? "" : entry.name, vectors});
  }
  return out;
}

}  // namespace sf::models
