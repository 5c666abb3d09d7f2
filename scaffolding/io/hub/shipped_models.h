// Models that come with Scaffolding, under their short names: folders share/scaffolding/models/NAME beside the library,
// be it in an installation, in a wheel or in a build folder (where share/scaffolding/models is a link to the source
// tree's models). Functions only: any thread may call any of them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sf::io {

// whether a model of this name belongs to this version: "emoji-128", "emoji-video"
bool is_shipped_model(const std::string& name);
std::vector<std::string> shipped_models();  // their names
// the folders it may be in, in the order in which they are looked at
std::vector<std::string> shipped_model_places(const std::string& name);
// the first of them that has a model_index.json
std::optional<std::string> find_shipped_model(const std::string& name);
std::string no_shipped_model(const std::string& name);  // a sentence: it is not there, and these places were looked at

enum class ShippedKind : uint8_t { Pictures, Clips };
// What is used where no model is named: the folder in SF_MODEL, of clips in SF_VIDEO_MODEL, else the name of the one
// that comes with Scaffolding. ValueError where it is not there.
std::string default_model(ShippedKind kind = ShippedKind::Pictures);

}  // namespace sf::io
