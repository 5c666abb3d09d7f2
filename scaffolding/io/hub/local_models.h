// Models that are on this machine, found by the names of their files: nothing is opened, so that ten thousand of them
// take milliseconds. Folders are walked down to a depth, each once however links lead there; FIFOs, devices and what
// cannot be read are passed over. Functions only: any thread may call any of them.
#pragma once
#include <string>
#include <vector>

#include "scaffolding/io/hub/model_places.h"

namespace sf::io {

inline constexpr int kMostModelDepth = 8;  // of folders below a place

struct LocalModel {
  std::string path;
  // below its place, with '/' between: "checkpoints/ink.safetensors"; of the cache "organisation/name", and for a file
  // of a repository "organisation/name/file"
  std::string name;
  std::string program;
  enum Form : uint8_t { File, Pipeline, Part } form = File;  // Part: a folder with one network, or an adapter
  ModelUse use = ModelUse::Any;
  bool repository = false;  // `name` is the hub's, and the path that of its newest snapshot here
};

// In the order of the places, and of the names in each.
std::vector<LocalModel> local_models(const std::vector<ModelPlace>& places);

// Those that `name` may mean: as it is below its place, or only its last parts, with its suffix or without; case does
// not matter unless several differ in it alone. Each file once, whatever links lead to it.
std::vector<LocalModel> models_called(const std::string& name, const std::vector<LocalModel>& models);
// The name without folders and suffix: "ink".
std::string short_name(const LocalModel& model);

// The folder of a repository in the cache that has everything its model_index.json names, or a network with its
// weights; "" where it is not there whole. The server is not asked.
std::string whole_snapshot(const std::string& repo_id);

}  // namespace sf::io
