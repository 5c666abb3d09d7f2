#include "scaffolding/io/scaled_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "scaffolding/core/error.h"
#include "scaffolding/io/json_error.h"
#include "scaffolding/io/stored_blocks.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/quantize/fp8.h"
#include "scaffolding/ops/quantize/int8_rows.h"

namespace sf::io {

namespace {

constexpr int64_t kMostJson = 1 << 16;  // bytes that describe a layer
constexpr std::string_view kWeight = ".weight", kScales[] = {".scale_weight", ".weight_scale"},
                           kBeside[] = {".scale_weight", ".weight_scale", ".scale_input", ".input_scale",
                                        ".comfy_quant"},
                           kMarker = "scaled_fp8", kMetadata = "_quantization_metadata";

bool is_float8_entry(const std::string& dtype) { return dtype == "F8_E4M3" || dtype == "F8_E5M2"; }

// "" where the name ends otherwise.
std::string before(const std::string& name, std::string_view ending) {
  return name.size() > ending.size() && name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : "";
}
bool is_beside(const std::string& name) {
  return name == kMarker || name.ends_with("." + std::string(kMarker)) ||
         std::any_of(std::begin(kBeside), std::end(kBeside),
                     [&](auto ending) { return !before(name, ending).empty(); });
}

// What a JSON text says of a layer: a format that is known here.
void check_facts(const nlohmann::json& facts, const std::string& where) {
  const auto format = facts.is_object() ? facts.find("format") : facts.end();
  SF_CHECK(facts.is_object() && format != facts.end() && format->is_string(), where,
           " must be an object with a format, got ", facts.dump().substr(0, 80));
  const std::string name = format->get<std::string>();
  SF_CHECK_AS(NotSupported, name == "float8_e4m3fn" || name == "float8_e5m2" || name == "int8_tensorwise", where,
              ": weights in the format '", name, "' are not read; float8_e4m3fn, float8_e5m2 and int8_tensorwise are");
  auto rotated = facts.find("convrot");
  SF_CHECK_AS(NotSupported, rotated == facts.end() || *rotated == false || rotated->is_null(), where,
              ": weights that are rotated (convrot) are not read; use a file without it");
}

nlohmann::json parsed(std::string_view text, const std::string& where) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    fail(where, " is no JSON: ", json_error(e));
  }
}

class ScaledCheckpoint final : public Checkpoint, public StoresBlocks {
 public:
  ScaledCheckpoint(std::shared_ptr<const Checkpoint> file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {
    for (auto& name : file_->names()) {
      if (!is_beside(name)) names_.push_back(name);
      if (auto layer = before(name, ".comfy_quant"); !layer.empty()) check_layer(layer, name);
      for (auto ending : kScales)
        if (auto layer = before(name, ending); !layer.empty())
          SF_CHECK(file_->contains(layer + std::string(kWeight)), path_, ": '", name, "' is a scale, and there is no '",
                   layer, kWeight, "'");
    }
    known_.insert(names_.begin(), names_.end());
    const auto metadata = file_->metadata();
    auto all = metadata.find(std::string(kMetadata));
    if (all == metadata.end()) return;
    const std::string where = path_ + ": " + std::string(kMetadata);
    const nlohmann::json facts = parsed(all->second, where);
    const auto layers = facts.is_object() ? facts.find("layers") : facts.end();
    SF_CHECK(facts.is_object() && layers != facts.end() && layers->is_object(), where, " has no layers");
    for (auto& [layer, of_layer] : layers->items()) check_facts(of_layer, where + ": " + layer);
  }

  const char* kind() const override { return file_->kind(); }
  std::vector<std::string> names() const override { return names_; }
  bool contains(const std::string& name) const override { return known_.contains(name); }
  CheckpointEntry entry(const std::string& name) const override { return file_->entry(name); }
  std::map<std::string, std::string> metadata() const override { return file_->metadata(); }

  Tensor get(const std::string& name) const override {
    const Tensor t = file_->get(name);
    if (!is_float8(t.dtype()) && t.dtype() != kInt8) return t;
    const Tensor scale = scale_of(name, t);
    if (is_float8(t.dtype())) {
      if (t.ndim() < 2 || scale.numel() == 1) return dequantize_fp8(t, scale.reshape({}));
      return dequantize_fp8(t.reshape({t.size(0), -1}), scale.reshape({t.size(0), 1})).view(t.shape());
    }
    if (!has_scale(name)) return t;
    return dequantize_int8(t.reshape({t.size(0), -1}), scale, kFloat32, 1.0).view(t.shape());
  }

  std::optional<StoredBlocks> blocks(const std::string& name) const override {
    const std::string dtype = file_->entry(name).dtype;
    if (!is_float8_entry(dtype) && (dtype != "I8" || !has_scale(name))) return {};
    const Tensor t = file_->get(name);
    if (t.ndim() != 2) return {};
    const char* format = t.dtype() == kInt8 ? "int8" : t.dtype() == kFloat8E4M3 ? "float8_e4m3fn" : "float8_e5m2";
    return StoredBlocks{t, format, scale_of(name, t)};
  }

 private:
  void check_layer(const std::string& layer, const std::string& name) const {
    const Tensor text = file_->get(name);
    SF_CHECK(text.dtype() == kUInt8 && text.ndim() == 1 && text.numel() <= kMostJson, path_, ": '", name,
             "' must be bytes of a JSON text, got ", text.dtype(), " ", text.shape());
    const Tensor bytes = contiguous(text);
    check_facts(parsed({static_cast<const char*>(bytes.data_ptr()), size_t(bytes.numel())}, path_ + ": " + name),
                path_ + ": " + layer);
  }
  std::string scale_name(const std::string& name) const {
    const std::string layer = before(name, kWeight);
    for (auto ending : kScales)
      if (!layer.empty() && file_->contains(layer + std::string(ending))) return layer + std::string(ending);
    return {};
  }
  bool has_scale(const std::string& name) const { return !scale_name(name).empty(); }
  // float32 [] or [rows]; 1 where there is none.
  Tensor scale_of(const std::string& name, const Tensor& weight) const {
    const std::string beside = scale_name(name);
    if (beside.empty()) return ones({}, kFloat32);
    const Tensor given = file_->get(beside);
    const int64_t rows = weight.ndim() > 0 ? weight.size(0) : 1;
    SF_CHECK(is_floating(given.dtype()) && !is_float8(given.dtype()) &&
                 (given.numel() == 1 || (given.numel() == rows && given.size(0) == rows)),
             path_, ": '", beside, "' must be one number, or one for each of ", rows, " rows, got ", given.dtype(), " ",
             given.shape());
    const Tensor scale = contiguous(to_dtype(given, kFloat32));
    const auto* numbers = static_cast<const float*>(scale.data_ptr());
    for (int64_t i = 0; i < scale.numel(); ++i)
      SF_CHECK(std::isfinite(numbers[i]), path_, ": '", beside, "' must be finite, got ", numbers[i]);
    return given.numel() == 1 ? scale.reshape({}) : scale.reshape({rows});
  }

  std::shared_ptr<const Checkpoint> file_;
  std::string path_;
  std::vector<std::string> names_;
  std::set<std::string> known_;
};

}  // namespace

std::shared_ptr<const Checkpoint> with_scales(std::shared_ptr<const Checkpoint> file, const std::string& path) {
  bool scaled = file->metadata().contains(std::string(kMetadata));
  for (auto& name : file->names()) {
    if (scaled) break;
    scaled = is_beside(name) || is_float8_entry(file->entry(name).dtype);
  }
  return scaled ? std::make_shared<ScaledCheckpoint>(std::move(file), path) : file;
}

}  // namespace sf::io
