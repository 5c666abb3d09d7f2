#include "scaffolding/io/formats/sharded.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "scaffolding/io/json.h"
#include "scaffolding/io/replacing_folder.h"

namespace sf::io {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxIndex = 100'000'000;  // bytes

// {"metadata": {...}, "weight_map": {name: file}}, event by event: no tree is built and nothing recurses.
class IndexReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  ShardIndex index;
  bool has_map = false;
  std::string problem;

  bool start_object(size_t) override {
    if (depth_ == 1 && key_ == "weight_map") {
      if (has_map) return stop("'weight_map' appears twice");
      has_map = in_map_ = true;
    } else if (in_map_) {
      return refuse("an object");
    }
    in_metadata_ = depth_ == 1 && key_ == "metadata";
    return deeper();
  }
  bool end_object() override {
    if (--depth_ == 1) in_map_ = in_metadata_ = false;
    return true;
  }
  bool start_array(size_t) override {
    return depth_ == 0 || in_map_ || (depth_ == 1 && key_ == "weight_map") ? refuse("an array") : deeper();
  }
  bool end_array() override { return --depth_, true; }
  bool key(std::string& k) override { return key_ = std::move(k), true; }
  bool string(std::string& s) override {
    if (depth_ == 2 && in_map_) {
      if (s.empty() || s == "." || s == ".." || s.find('/') != std::string::npos || s.find('\\') != std::string::npos ||
          s.find('\0') != std::string::npos)
        return stop("the file name of tensor '" + shown(key_) + "' is '" + shown(s) +
                    "', which must name a file in the index's own folder");
      if (!index.weight_map.emplace(key_, std::move(s)).second)
        return stop("tensor '" + shown(key_) + "' appears twice");
      return true;
    }
    return value(s, "a string");
  }
  bool null() override { return value("null", "null"); }
  bool boolean(bool v) override { return value(v ? "true" : "false", "a bool"); }
  bool number_integer(int64_t v) override { return value(std::to_string(v), "a number"); }
  bool number_unsigned(uint64_t v) override { return value(std::to_string(v), "a number"); }
  bool number_float(double, const std::string& text) override { return value(text, "a number"); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    return stop("the JSON is broken at byte " + std::to_string(position));
  }

 private:
  static std::string shown(const std::string& s) { return s.size() <= 80 ? s : s.substr(0, 80) + "..."; }
  bool stop(std::string why) { return problem = std::move(why), false; }
  bool refuse(const char* what) {
    return stop(std::string(what) + (depth_ == 0 ? " is the whole index" : " stands at '" + shown(key_) + "'"));
  }
  bool deeper() { return ++depth_ <= 64 || stop("it is nested more than 64 deep"); }
  bool value(const std::string& text, const char* what) {
    if (depth_ == 0 || in_map_ || (depth_ == 1 && key_ == "weight_map")) return refuse(what);
    if (depth_ == 2 && in_metadata_) index.metadata[key_] = text;
    return true;
  }

  int depth_ = 0;
  bool in_map_ = false, in_metadata_ = false;
  std::string key_;
};

std::string shard_name(const std::string& stem, size_t i, size_t n) {
  char number[64];
  std::snprintf(number, sizeof number, "-%05zu-of-%05zu.safetensors", i, n);
  return stem + number;
}

// Whether `name` is one of stem's shards, of whatever number.
bool is_shard_of(const std::string& stem, const std::string& name) {
  constexpr std::string_view kPattern = "-00000-of-00000.safetensors";
  if (name.size() != stem.size() + kPattern.size() || !name.starts_with(stem)) return false;
  for (size_t i = 0; i < kPattern.size(); ++i) {
    char c = name[stem.size() + i];
    if (kPattern[i] == '0' ? c < '0' || c > '9' : c != kPattern[i]) return false;
  }
  return true;
}

}  // namespace

bool is_shard_index(const Bytes& file) {
  std::string_view text(file.size ? file.chars() : "", size_t(std::min(file.size, kMaxIndex)));
  size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{' && text.find("\"weight_map\"") != std::string_view::npos;
}

ShardIndex read_shard_index(const Bytes& file) {
  SF_CHECK(file.size <= kMaxIndex, file.name, ": an index of ", file.size, " bytes is too large");
  IndexReader reader;
  const char* text = file.size ? file.chars() : "";
  bool fine = nlohmann::json::sax_parse(text, text + file.size, &reader);
  SF_CHECK(fine, file.name, ": ", reader.problem);
  SF_CHECK(reader.has_map, file.name, ": the index has no 'weight_map'");
  return std::move(reader.index);
}

std::string save_sharded_safetensors(const std::map<std::string, Tensor>& tensors, const std::string& path,
                                     uint64_t max_shard_size, const Metadata& metadata) {
  constexpr std::string_view kEnding = ".safetensors";
  SF_CHECK(path.ends_with(kEnding), "save_sharded: the path must end in .safetensors, got '", path, "'");
  SF_CHECK(max_shard_size > 0, "save_sharded: max_shard_size must be positive");
  std::vector<std::map<std::string, Tensor>> shards(1);
  uint64_t total = 0, used = 0;
  for (auto& [name, t] : tensors) {
    SF_CHECK_AS(TypeError, t.defined(), "save_sharded: '", name, "' must be a tensor, got None");
    if (used > 0 && used + t.nbytes() > max_shard_size) shards.emplace_back(), used = 0;
    shards.back()[name] = t;
    used += t.nbytes();
    total += t.nbytes();
  }
  fs::path folder = fs::path(path).parent_path();
  std::string stem = fs::path(path).filename().string();
  stem.resize(stem.size() - kEnding.size());
  std::string index_path = path + ".index.json";
  ReplacingFolder whole(folder.empty() ? "." : folder.string(),
                        fs::path(shards.size() == 1 ? path : index_path).filename().string());
  std::set<std::string> names;
  std::vector<std::unique_ptr<ReplacingFile>> files;
  auto json =
      nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", nlohmann::ordered_json::object()}};
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name = shards.size() == 1 ? stem + std::string(kEnding) : shard_name(stem, i + 1, shards.size());
    files.push_back(std::make_unique<ReplacingFile>((folder / name).string()));
    save_safetensors(shards[i], *files.back(), metadata);
    files.back()->sync();
    names.insert(name);
    for (auto& [tensor, t] : shards[i]) json["weight_map"][tensor] = name;
  }
  if (shards.size() > 1) {
    std::string text = json_text(json, 2) + "\n";
    files.push_back(std::make_unique<ReplacingFile>(index_path));
    files.back()->write(text.data(), text.size());
    files.back()->sync();
  }
  for (auto& f : files) f->commit();
  std::error_code ignored;
  for (auto& e : fs::directory_iterator(folder.empty() ? fs::path(".") : folder, ignored)) {
    std::string name = e.path().filename().string();
    if (is_shard_of(stem, name) && !names.count(name)) ReplacingFolder::remove(e.path().string());
  }
  ReplacingFolder::remove(shards.size() == 1 ? index_path : path);
  whole.commit();
  return shards.size() == 1 ? path : index_path;
}

}  // namespace sf::io
