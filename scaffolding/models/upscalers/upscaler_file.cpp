#include "scaffolding/models/upscalers/upscaler_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/models/single_file/single_model.h"
#include "scaffolding/models/upscalers/rrdbnet.h"
#include "scaffolding/models/upscalers/srvgg_net_compact.h"

namespace sf::models {

namespace {

// What an RRDBNet's tensors are called; blocks' names take the block's number.
struct RRDBNames {
  std::string first, body, rdb1, last;  // "body", ".rdb1.conv1"
  std::vector<std::string> ups;
  bool numbered = false;  // as old ESRGAN's list: the last one's name depends on the number of doublings
};
const RRDBNames kRRDBNames[] = {
    {"conv_first", "body", ".rdb1.conv1", "conv_last", {"conv_up1", "conv_up2", "conv_up3", "conv_up4"}},
    {"conv_first", "RRDB_trunk", ".RDB1.conv1", "conv_last", {"upconv1", "upconv2", "upconv3", "upconv4"}},
    {"model.0", "model.1.sub", ".RDB1.conv1.0", "", {}, true},
};

std::string numbered(const std::string& list, int64_t i) { return list + "." + std::to_string(i); }

struct FoundRRDB {
  const RRDBNames* names;
  std::string before;
};
std::optional<FoundRRDB> find_rrdb(const TensorShapes& tensors) {
  for (auto& names : kRRDBNames) {
    const auto before = tensors.before({names.first + ".weight", names.body + ".0" + names.rdb1 + ".weight"});
    if (!before.empty()) return FoundRRDB{&names, before[0]};
  }
  return std::nullopt;
}

std::optional<std::string> find_compact(const TensorShapes& tensors) {
  for (auto& before : tensors.before({"body.0.weight", "body.2.weight"})) {
    const Shape *first = tensors.find(before + "body.0.weight"), *second = tensors.find(before + "body.2.weight");
    if (first->size() == 4 && second->size() == 4 && !tensors.has(before + "conv_first.weight")) return before;
  }
  return std::nullopt;
}

int64_t root_of(int64_t square) {
  auto root = int64_t(std::llround(std::sqrt(double(square))));
  return root * root == square ? root : 0;
}

}  // namespace

TensorShapes::TensorShapes(const std::vector<io::CheckpointEntry>& tensors) {
  for (auto& t : tensors) tensors_.emplace(t.name, &t.shape);
}

const Shape* TensorShapes::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

Shape TensorShapes::kernel(const char* who, const std::string& name) const {
  const Shape* shape = find(name);
  SF_CHECK(shape, who, ": the file has no tensor '", name, "'");
  SF_CHECK(shape->size() == 4 && (*shape)[0] > 0 && (*shape)[1] > 0 && (*shape)[2] == 3 && (*shape)[3] == 3, who, ": '",
           name, "' must be [O, C, 3, 3], got ", *shape);
  return *shape;
}

std::vector<std::string> TensorShapes::before(const std::vector<std::string>& names) const {
  std::vector<std::string> out;
  for (auto& [name, shape] : tensors_) {
    if (!name.ends_with(names[0])) continue;
    const std::string before(name.substr(0, name.size() - names[0].size()));
    if (!before.empty() && before.back() != '.') continue;
    if (std::all_of(names.begin(), names.end(), [&](auto& one) { return has(before + one); })) out.push_back(before);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](auto& a, auto& b) { return (a.find("ema") != a.npos) > (b.find("ema") != b.npos); });
  return out;
}

io::Object RRDBNet::config_of_weights(const std::vector<io::CheckpointEntry>& entries) {
  const TensorShapes tensors(entries);
  const auto found = find_rrdb(tensors);
  SF_CHECK(found, kName, ": the file has no tensors such as '", kRRDBNames[0].first, ".weight' and '",
           kRRDBNames[0].body, ".0", kRRDBNames[0].rdb1, ".weight'");
  const auto& [names, before] = *found;
  const std::string body = before + names->body;
  for (const char* one : {".0.RDB1.conv1x1.weight", ".0.rdb1.conv1x1.weight"})
    SF_CHECK_AS(NotSupported, !tensors.has(body + one), kName,
                ": the file is ESRGAN+'s, whose blocks have a convolution of 1x1 more; that is not supported");
  Config c;
  c.num_upsample = 0;
  std::string last = before + names->last;
  if (names->numbered) {
    for (int64_t n = int64_t(std::size(kRRDBNames[0].ups)); n >= 0 && last == before; --n)
      if (tensors.has(before + numbered("model", 3 * n + 4) + ".weight"))
        c.num_upsample = n, last = before + numbered("model", 3 * n + 4);
  } else {
    while (c.num_upsample < int64_t(names->ups.size()) &&
           tensors.has(before + names->ups[size_t(c.num_upsample)] + ".weight"))
      ++c.num_upsample;
  }
  SF_CHECK(last != before, kName, ": the file has no tensor 'model.10.weight', the last one of a network by 4");
  const Shape first = tensors.kernel(kName, before + names->first + ".weight"),
              grow = tensors.kernel(kName, body + ".0" + names->rdb1 + ".weight"),
              out = tensors.kernel(kName, last + ".weight");
  c.num_feat = first[0], c.num_grow_ch = grow[0], c.num_out_ch = out[0];
  c.num_block = 0;
  while (c.num_block <= kMostLayers && tensors.has(numbered(body, c.num_block) + names->rdb1 + ".weight"))
    ++c.num_block;
  // Real-ESRGAN's of 1 and 2 see blocks of pixels and have the same doublings.
  const int64_t most = int64_t(1) << c.num_upsample,
                block = first[1] % c.num_out_ch == 0 ? root_of(first[1] / c.num_out_ch) : 0;
  const bool blocks = (block == 2 || block == 4) && block <= most;
  c.scale = blocks ? most / block : most;
  c.num_in_ch = blocks ? c.num_out_ch : first[1];
  return io::write_fields(c.fields());
}

io::Object SRVGGNetCompact::config_of_weights(const std::vector<io::CheckpointEntry>& entries) {
  const TensorShapes tensors(entries);
  const auto before = find_compact(tensors);
  SF_CHECK(before, kName, ": the file has no tensors 'body.0.weight' and 'body.2.weight' of convolutions");
  auto weight = [&](int64_t i) { return *before + numbered("body", i) + ".weight"; };
  int64_t convs = 0;
  while (convs <= kMostLayers + 2 && tensors.has(weight(2 * convs))) ++convs;
  const Shape first = tensors.kernel(kName, weight(0)), last = tensors.kernel(kName, weight(2 * (convs - 1)));
  Config c;
  c.num_in_ch = c.num_out_ch = first[1];
  c.num_feat = first[0];
  c.num_conv = convs - 2;
  c.upscale = last[0] % first[1] == 0 ? root_of(last[0] / first[1]) : 0;
  SF_CHECK(c.upscale > 0, kName, ": '", weight(2 * (convs - 1)), "' must have ", first[1],
           " channels for each pixel of a square, got ", last);
  c.act_type = tensors.has(weight(1)) ? "prelu" : "relu";
  return io::write_fields(c.fields());
}

std::optional<UpscalerKind> recognise_upscaler(const std::vector<io::CheckpointEntry>& entries) {
  const TensorShapes tensors(entries);
  if (find_rrdb(tensors)) return UpscalerKind{RRDBNet::kName, RRDBNet::config_of_weights(entries)};
  if (find_compact(tensors)) return UpscalerKind{SRVGGNetCompact::kName, SRVGGNetCompact::config_of_weights(entries)};
  return std::nullopt;
}

int64_t scale_of(const UpscalerKind& kind) {
  const io::Object* scale = kind.config.find(kind.class_name == RRDBNet::kName ? "scale" : "upscale");
  return scale->as_int();
}

std::string describe(const UpscalerKind& kind) {
  auto number = [&](const char* field) { return std::to_string(kind.config.find(field)->as_int()); };
  const bool compact = kind.class_name == SRVGGNetCompact::kName;
  return kind.class_name + " of " + number(compact ? "num_conv" : "num_block") +
         (compact ? " convolutions" : " blocks") + " and " + number("num_feat") +
         " channels, which enlarges pictures by " + std::to_string(scale_of(kind));
}

std::unique_ptr<Model> load_upscaler(const std::string& path, const LoadModelOptions& options) {
  if (std::filesystem::is_directory(path)) {
    auto model = load_model(path, options);
    SF_CHECK(dynamic_cast<UpscalingModel*>(model.get()), path, ": holds a ", model->type(),
             ", which does not enlarge pictures; an RRDBNet or SRVGGNetCompact does");
    return model;
  }
  const auto kind = recognise_upscaler(io::open_checkpoint(path)->entries());
  SF_CHECK(kind, path,
           ": is no file of ESRGAN or Real-ESRGAN (RRDBNet, SRVGGNetCompact); `scaffolding inspect` shows what it is");
  return load_single_model(path, kind->class_name, kind->config, options);
}

}  // namespace sf::models
