#include "scaffolding/io/scaled_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "scaffolding/core/error.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/io/json.h"
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

// What a JSON text says of a layer: a format that is known here. The numbers of a row that are rotated together; 0
// where none are.
int64_t rotated_together(const nlohmann::json& facts, const std::string& where) {
  const auto format = facts.is_object() ? facts.find("format") : facts.end();
  SF_CHECK(facts.is_object() && format != facts.end() && format->is_string(), where,
           " must be an object with a format, got ", json_text(facts).substr(0, 80));
  const std::string name = format->get<std::string>();
  SF_CHECK_AS(NotSupported, name == "float8_e4m3fn" || name == "float8_e5m2" || name == "int8_tensorwise", where,
              ": weights in the format '", name, "' are not read; float8_e4m3fn, float8_e5m2 and int8_tensorwise are");
  auto rotated = facts.find("convrot");
  if (rotated == facts.end() || *rotated == false || rotated->is_null()) return 0;
  const auto size = facts.find("convrot_groupsize");
  const int64_t n = size == facts.end() ? 256 : size->is_number_integer() ? size->get<int64_t>() : 0;
  SF_CHECK(*rotated == true && (n == 4 || n == 16 || n == 64 || n == 256 || n == 1024), where,
           ": weights that are rotated (convrot) are so by a power of 4 up to 1024, got ",
           size == facts.end() ? rotated->dump().substr(0, 80) : size->dump().substr(0, 80));
  SF_CHECK(name == "int8_tensorwise", where, ": int8 weights alone are rotated (convrot), got ", name);
  return n;
}

// Every n numbers times the regular Hadamard matrix of that order, a Kronecker power of its own of order 4, which is
// symmetric and its own inverse: what ComfyUI's ConvRot did to rows before they became integers.
void rotate_back(float* x, int64_t count, int64_t n) {
  parallel_for(count / n, 1 + 16384 / n, [&](int64_t begin, int64_t end) {
    for (float* row = x + begin * n; row < x + end * n; row += n)
      for (int64_t step = 1; step < n; step *= 4)
        for (int64_t i = 0; i < n; ++i) {
          if (i / step % 4) continue;
          float* at = row + i;
          const float a = at[0], b = at[step], c = at[2 * step], d = at[3 * step], half = 0.5f * (a + b + c + d);
          at[0] = half - d, at[step] = half - c, at[2 * step] = half - b, at[3 * step] = half - a;
        }
  });
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
    for (auto& [layer, of_layer] : layers->items())
      rotated_[layer + std::string(kWeight)] = rotated_together(of_layer, where + ": " + layer);
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
    const Tensor numbers = dequantize_int8(t.reshape({t.size(0), -1}), scale, kFloat32, 1.0);
    if (const int64_t n = rotated(name)) {
      SF_CHECK(numbers.size(1) % n == 0, path_, ": '", name, "' is rotated (convrot) by ", n,
               " numbers, and has rows of ", numbers.size(1));
      rotate_back(static_cast<float*>(numbers.data_ptr()), numbers.numel(), n);
    }
    return numbers.view(t.shape());
  }

  std::optional<StoredBlocks> blocks(const std::string& name) const override {
    const std::string dtype = file_->entry(name).dtype;
    if ((!is_float8_entry(dtype) && (dtype != "I8" || !has_scale(name))) || rotated(name)) return {};
    const Tensor t = file_->get(name);
    if (t.ndim() != 2) return {};
    const char* format = t.dtype() == kInt8 ? "int8" : t.dtype() == kFloat8E4M3 ? "float8_e4m3fn" : "float8_e5m2";
    return StoredBlocks{t, format, scale_of(name, t)};
  }

 private:
  void check_layer(const std::string& layer, const std::string& name) {
    const Tensor text = file_->get(name);
    SF_CHECK(text.dtype() == kUInt8 && text.ndim() == 1 && text.numel() <= kMostJson, path_, ": '", name,
             "' must be bytes of a JSON text, got ", text.dtype(), " ", text.shape());
    const Tensor bytes = contiguous(text);
    rotated_[layer + std::string(kWeight)] = rotated_together(
        parsed({static_cast<const char*>(bytes.data_ptr()), size_t(bytes.numel())}, path_ + ": " + name),
        path_ + ": " + layer);
  }
  int64_t rotated(const std::string& name) const {
    auto found = rotated_.find(name);
    return found == rotated_.end() ? 0 : found->second;
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
  std::map<std::string, int64_t> rotated_;  // by weights' names
};

}  // namespace

void refuse_svdquant(const Checkpoint& file, const std::string& path) {
  for (auto& name : file.names())
    SF_CHECK_AS(NotSupported, before(name, ".wscales").empty() && before(name, ".smooth_factor").empty(), path, ": '",
                name,
                "' is of SVDQuant (Nunchaku), whose packed weights are not read; quantise the full model, or use a "
                "GGUF file of it");
}

std::shared_ptr<const Checkpoint> with_scales(std::shared_ptr<const Checkpoint> file, const std::string& path) {
  refuse_svdquant(*file, path);
  bool scaled = file->metadata().contains(std::string(kMetadata));
  for (auto& name : file->names()) {
    if (scaled) break;
    scaled = is_beside(name) || is_float8_entry(file->entry(name).dtype);
  }
  return scaled ? std::make_shared<ScaledCheckpoint>(std::move(file), path) : file;
}

}  // namespace sf::io
