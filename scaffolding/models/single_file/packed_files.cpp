#include "scaffolding/models/single_file/packed_files.h"

#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/io/base64.h"
#include "scaffolding/io/config.h"
#include "scaffolding/models/model.h"
#include "scaffolding/models/model_files.h"

namespace sf::models {

namespace {

constexpr const char *kText = "scaffolding:", *kBytes = "scaffolding-base64:";
constexpr const char* kIndex = "model_index.json";
constexpr size_t kMostFiles = 64, kMostBytes = 32'000'000;  // of one file

bool is_text(const std::string& path) { return path.ends_with(".json") || path.ends_with(".txt"); }

// "model_index.json" or "component/file".
bool is_path(const std::string& path) {
  auto is_name = [](const std::string& name) {
    return !name.empty() && name.size() <= 100 && name[0] != '.' &&
           std::all_of(name.begin(), name.end(), [](unsigned char c) {
             return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                    c == '-' || c == '.';
           });
  };
  const size_t slash = path.find('/');
  if (slash == path.npos) return path == kIndex;
  return is_name(path.substr(0, slash)) && is_name(path.substr(slash + 1));
}

PackedFiles below(const PackedFiles& files, const std::string& folder) {
  PackedFiles out;
  for (auto& [path, text] : files)
    if (path.starts_with(folder + "/")) out.emplace(path.substr(folder.size() + 1), text);
  return out;
}

}  // namespace

Metadata packed_metadata(const PackedFiles& files) {
  Metadata out;
  for (auto& [path, content] : files) {
    SF_CHECK(is_path(path), "single file: '", path, "' is no file of a pipeline's folder");
    if (is_text(path)) out.emplace(kText + path, content);
    else out.emplace(kBytes + path, io::to_base64(content));
  }
  return out;
}

std::string packed_path(const std::string& key) {
  for (const std::string_view prefix : {kText, kBytes})
    if (key.starts_with(prefix)) return key.substr(prefix.size());
  return "";
}

PackedFiles packed_files(const Metadata& metadata, const std::string& path) {
  PackedFiles out;
  for (auto& [key, value] : metadata) {
    const std::string file = packed_path(key);
    if (file.empty()) continue;
    SF_CHECK(is_path(file), path, ": the metadata's '", printable(key.substr(0, 100)),
             "' is no file of a pipeline's folder");
    SF_CHECK(value.size() <= kMostBytes, path, ": the metadata's '", key, "' has ", value.size(), " bytes, at most ",
             kMostBytes, " are read");
    std::optional<std::string> content = value;
    if (key.starts_with(kBytes)) content = io::from_base64(value);
    SF_CHECK(content, path, ": the metadata's '", key, "' must be base64");
    SF_CHECK(out.emplace(file, std::move(*content)).second, path, ": the metadata has '", file, "' twice");
  }
  SF_CHECK(out.size() <= kMostFiles, path, ": the metadata has ", out.size(), " files of a pipeline, at most ",
           kMostFiles, " are read");
  SF_CHECK(out.empty() || out.count(kIndex), path, ": the metadata has files of a pipeline and no ", kIndex);
  return out;
}

SingleFileKind packed_kind(const PackedFiles& files, const io::Checkpoint& file, const std::string& path) {
  auto config_in = [&](const std::string& name) { return io::parse_config(files.at(name), path + "/" + name); };
  SingleFileKind kind;
  kind.name = "pipeline";
  kind.model_index = config_in(kIndex);
  const io::Object* named = kind.model_index.find("_class_name");
  SF_CHECK(named && named->is(io::Object::String), path, "/", kIndex, ": has no _class_name");
  kind.title = "a " + printable(named->text().substr(0, 100));
  auto& rows = kind.model_index.items();
  for (size_t i = 0; i + 1 < rows.size(); i += 2) {
    const std::string& name = rows[i].text();
    auto text = [](const io::Object& o) { return o.is(io::Object::String) ? o.text() : std::string(); };
    if (name.starts_with("_") || !rows[i + 1].is_sequence() || rows[i + 1].items().size() != 2) continue;
    const std::string library = text(rows[i + 1].items()[0]), class_name = text(rows[i + 1].items()[1]);
    if (class_name.empty()) continue;
    if (find_model(class_name)) {
      if (!files.count(name + "/config.json")) continue;
      io::Object config = config_in(name + "/config.json");
      const std::string made = model_class(class_name, config);
      kind.parts.push_back({name, library, made, {{"own", name + "."}}, std::move(config)});
    } else if (files.count(name + "/scheduler_config.json")) {
      kind.parts.push_back({name, library, class_name, {}, config_in(name + "/scheduler_config.json")});
    } else {
      kind.tokenizers.push_back({name, class_name, below(files, name)});
    }
  }
  std::sort(kind.parts.begin(), kind.parts.end(), [](auto& a, auto& b) { return a.name < b.name; });

  const auto names = file.names();
  const bool own = std::any_of(kind.parts.begin(), kind.parts.end(), [&](auto& part) {
    return !part.places.empty() &&
           std::any_of(names.begin(), names.end(), [&](auto& name) { return name.starts_with(part.places[0].prefix); });
  });
  if (own) return kind;
  for (auto& published : recognise_single_file(file, "", path).parts)
    for (auto& part : kind.parts)
      if (part.name == published.name && part.class_name == published.class_name && !part.places.empty())
        part.places = published.places;
  return kind;
}

}  // namespace sf::models
