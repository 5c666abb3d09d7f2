#include "scaffolding/models/single_file/single_file.h"

#include <algorithm>
#include <set>

#include "scaffolding/io/config.h"
#include "scaffolding/io/torch_file.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

// v2's 512-base.ckpt was saved after this step and predicts noise; what came later predicts velocity (diffusers goes by it too).
constexpr int64_t kStepOfV2Base = 875000;

std::string ema_name(const std::string& name) {  // model.diffusion_model.a.0.b: model_ema.diffusion_modela0b
  std::string flat = name.substr(name.find('.') + 1);
  flat.erase(std::remove(flat.begin(), flat.end(), '.'), flat.end());
  return "model_ema." + flat;
}

// The step at which a .ckpt was saved; -1 where it does not say.
int64_t global_step(const io::Checkpoint& file, const std::string& path) {
  if (std::string_view(file.kind()) != "torch") return -1;
  const io::Object tree = io::load_torch(path, {.placeholders = true});
  const io::Object* step = tree.is_dict() ? tree.find("global_step") : nullptr;
  return step && step->is(io::Object::Int) ? step->as_int() : -1;
}

io::Object with(const io::Object& config, const char* key, const io::Object& value) {
  std::vector<io::Object> items;
  bool found = false;
  for (size_t i = 0; i + 1 < config.items().size(); i += 2) {
    bool here = config.items()[i].is(io::Object::String) && config.items()[i].text() == key;
    found |= here;
    items.push_back(config.items()[i]);
    items.push_back(here ? value : config.items()[i + 1]);
  }
  if (!found) items.insert(items.end(), {key, value});
  return io::Object::container(io::Object::Dict, std::move(items));
}

// What the checkpoint must have for the row.
bool fits(const KeyRow& row, const Shape& s) {
  auto same = [](const Shape& a, const Shape& b) { return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin()); };
  switch (row.change) {
    case KeyChange::Same: return same(s, row.shape);
    case KeyChange::Flatten:
      return s.size() >= 2 && s.size() <= 4 && s[0] == row.shape[0] && s[1] == row.shape[1] &&
             std::all_of(s.begin() + 2, s.end(), [](int64_t n) { return n == 1; });
    case KeyChange::Transpose: return s.size() == 2 && s[0] == row.shape[1] && s[1] == row.shape[0];
    case KeyChange::Third: return s.size() == row.shape.size() && s[0] == 3 * row.shape[0] && std::equal(s.begin() + 1, s.end(), row.shape.begin() + 1);
  }
  return false;
}

Shape source_shape(const KeyRow& row) {
  Shape s = row.shape;
  if (row.change == KeyChange::Flatten) s = {s[0], s[1], 1, 1};
  if (row.change == KeyChange::Transpose) s = {s[1], s[0]};
  if (row.change == KeyChange::Third) s[0] *= 3;
  return s;
}

std::string listed(const std::vector<std::string>& all) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(3, all.size()); ++i) out += (i ? ", " : "") + all[i];
  return all.size() > 3 ? out + " and " + std::to_string(all.size() - 3) + " more" : out;
}

}  // namespace

SingleFile::SingleFile(const std::string& path, const SingleFileOptions& options) : path_(path), file_(io::open_checkpoint(path)) {
  auto names = file_->names();
  bool nested = std::any_of(names.begin(), names.end(), [](auto& n) { return n.rfind("state_dict.", 0) == 0; });
  std::string outer = nested ? "state_dict." : "";
  kind_ = &recognise_single_file(*file_, outer, path);
  for (auto& [name, config] : options.configs)
    SF_CHECK(std::any_of(kind_->parts.begin(), kind_->parts.end(), [&, n = name](auto& p) { return p.name == n; }), path, ": is ", kind_->title,
             ", which has no part '", name, "' that a config could be for");
  for (auto& part : kind_->parts)
    if (options.parts.empty() || std::count(options.parts.begin(), options.parts.end(), part.name)) add_part(part, outer, options);
  std::string wanted;
  for (auto& name : options.parts) wanted += (wanted.empty() ? "" : " or ") + name;
  SF_CHECK(!loaded_.empty(), path, ": is ", kind_->title, " without a ", wanted.empty() ? "part that is known" : wanted);
  bool base = kind_->name == "v2" && options.prediction_type.empty() && global_step(*file_, path) == kStepOfV2Base;
  std::string prediction = base ? "epsilon" : options.prediction_type;
  SF_CHECK(prediction.empty() || prediction == "epsilon" || prediction == "v_prediction", path, ": prediction_type must be 'epsilon' or 'v_prediction', got '",
           prediction, "'");
  for (auto& part : parts_) {
    if (part.name == "scheduler" && !prediction.empty()) part.config = with(part.config, "prediction_type", prediction.c_str());
    if (part.name == "unet" && base && !options.configs.count("unet")) part.config = with(part.config, "sample_size", int64_t(64));
  }
}

void SingleFile::add_part(const SingleFilePart& part, const std::string& outer, const SingleFileOptions& options) {
  auto given = options.configs.find(part.name);
  io::Object config = given != options.configs.end() ? given->second : io::parse_config(part.config, kind_->repository + "/" + part.name);
  if (!part.rows) {
    parts_.push_back({part.name, part.library, part.class_name, config});
    return;
  }
  KeyRows rows = part.rows(config);
  std::string prefix;
  bool found = false;
  for (auto& p : part.prefixes)
    if (!found && std::any_of(rows.begin(), rows.end(), [&](auto& r) { return file_->contains(outer + p + r.source); })) {
      prefix = outer + p;
      found = true;
    }
  // Programs of 2022 wrote the tower of SD 1.x without the name of its outermost module.
  std::string short_prefix = part.prefixes[0] + "embeddings.token_embedding.weight", outermost = "text_model.";
  if (!found && file_->contains(outer + short_prefix)) {
    prefix = outer + part.prefixes[0];
    found = true;
    for (auto& r : rows)
      if (r.source.rfind(outermost, 0) == 0) r.source = r.source.substr(outermost.size());
  }
  if (!found) return;
  std::vector<std::string> missing, wrong;
  bool ema = options.extract_ema && part.name == "unet";
  Loaded loaded;
  for (auto& r : rows) {
    r.source = ema ? outer + ema_name((prefix + r.source).substr(outer.size())) : prefix + r.source;
    if (!file_->contains(r.source)) {
      if (missing.empty() || missing.back() != "'" + r.source + "'") missing.push_back("'" + r.source + "'");
    } else if (Shape s = file_->entry(r.source).shape; !fits(r, s)) {
      Message m;
      m << "'" << r.source << "' is " << s << " and should be " << source_shape(r);
      wrong.push_back(m.str());
    }
  }
  SF_CHECK(!ema || missing.size() < rows.size(), path_, ": has no averaged weights (model_ema.*); load it without extract_ema");
  SF_CHECK(missing.empty(), path_, ": is ", kind_->title, ", but its ", part.name, " lacks ", missing.size(),
           missing.size() == 1 ? " tensor: " : " tensors: ", listed(missing));
  SF_CHECK(wrong.empty(), path_, ": is ", kind_->title, ", but of its ", part.name, " ", wrong.size(), wrong.size() == 1 ? " tensor has" : " tensors have",
           " another shape: ", listed(wrong), "; for a model of another size pass its config");
  for (size_t i = 0; i < rows.size(); ++i) loaded.index[rows[i].name] = i;
  loaded.rows = std::move(rows);
  loaded_[part.name] = std::move(loaded);
  parts_.push_back({part.name, part.library, part.class_name, config});
}

const SingleFile::Part& SingleFile::part(const std::string& name) const {
  std::string have;
  for (auto& p : parts_) {
    if (p.name == name) return p;
    have += (have.empty() ? "" : ", ") + p.name;
  }
  fail(path_, ": has no ", name, "; it has ", have);
}

const KeyRows& SingleFile::rows(const std::string& name) const {
  static const KeyRows none;
  part(name);
  auto found = loaded_.find(name);
  return found == loaded_.end() ? none : found->second.rows;
}

io::Object SingleFile::model_index() const {
  io::Object out = io::parse_config(kind_->model_index, kind_->repository + "/model_index.json");
  for (auto& p : parts_)
    out = with(out, p.name.c_str(),
               io::Object::container(io::Object::List, {io::Object(std::string_view(p.library)), io::Object(std::string_view(p.class_name))}));
  return out;
}

Tensor SingleFile::tensor(const std::string& part_name, const std::string& name) const {
  const KeyRows& all = rows(part_name);
  auto found = loaded_.find(part_name);
  SF_CHECK(found != loaded_.end() && found->second.index.count(name), path_, ": its ", part_name, " has no tensor '", name, "'");
  const KeyRow& row = all[found->second.index.at(name)];
  Tensor t = file_->get(row.source);
  switch (row.change) {
    case KeyChange::Same: return t;
    case KeyChange::Flatten: return reshape(t, row.shape);
    case KeyChange::Transpose: return contiguous(transpose(t, 0, 1));
    case KeyChange::Third: return narrow(t, 0, row.part * row.shape[0], row.shape[0]);
  }
  return t;
}

// One part as a checkpoint of its own.
class SingleFile::PartCheckpoint final : public io::Checkpoint {
 public:
  PartCheckpoint(const SingleFile& file, const std::string& part) : file_(file), part_(part) {}
  const char* kind() const override { return file_.file_->kind(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (auto& r : file_.rows(part_)) out.push_back(r.name);
    return out;
  }
  bool contains(const std::string& name) const override { return file_.loaded_.at(part_).index.count(name) > 0; }
  io::CheckpointEntry entry(const std::string& name) const override {
    SF_CHECK(contains(name), file_.path_, ": its ", part_, " has no tensor '", name, "'");
    const KeyRow& row = file_.rows(part_)[file_.loaded_.at(part_).index.at(name)];
    return {name, file_.file_->entry(row.source).dtype, row.shape};
  }
  Tensor get(const std::string& name) const override { return file_.tensor(part_, name); }

 private:
  const SingleFile& file_;
  std::string part_;
};

std::unique_ptr<Model> SingleFile::load(const std::string& name, const LoadModelOptions& options) const {
  const Part& p = part(name);
  SF_CHECK(loaded_.count(name), path_, ": its ", name, " is no model");
  return load_model(PartCheckpoint(*this, name), p.class_name, p.config, options);
}

std::vector<std::string> SingleFile::unused() const {
  std::set<std::string> used;
  for (auto& [name, loaded] : loaded_)
    for (auto& r : loaded.rows) used.insert(r.source);
  std::vector<std::string> out;
  for (auto& n : file_->names())
    if (!used.count(n)) out.push_back(n);
  return out;
}

std::map<std::string, Tensor> to_single_file(const std::string& kind_name, const std::map<std::string, std::map<std::string, Tensor>>& parts,
                                             const std::map<std::string, io::Object>& configs) {
  const SingleFileKind& kind = single_file_kind(kind_name);
  std::map<std::string, Tensor> out;
  for (auto& [name, tensors] : parts) {
    auto part = std::find_if(kind.parts.begin(), kind.parts.end(), [&, n = name](auto& p) { return p.name == n && p.rows; });
    SF_CHECK(part != kind.parts.end(), "single file: ", kind.title, " has no part '", name, "' with tensors");
    auto given = configs.find(name);
    KeyRows rows = part->rows(given != configs.end() ? given->second : io::parse_config(part->config, kind.repository + "/" + name));
    // Of several names that are read, the one that CompVis' code writes.
    std::string prefix = name == "vae" ? "first_stage_model." : part->prefixes[0];
    std::map<std::string, std::vector<Tensor>> thirds;
    std::set<std::string> known;
    for (auto& r : rows) {
      auto found = tensors.find(r.name);
      SF_CHECK(found != tensors.end(), "single file: the ", name, " lacks '", r.name, "'");
      const Tensor& t = found->second;
      known.insert(r.name);
      SF_CHECK(t.shape().size() == r.shape.size() && std::equal(r.shape.begin(), r.shape.end(), t.shape().begin()), "single file: '", r.name, "' of the ", name,
               " is ", t.shape(), " and should be ", r.shape);
      Tensor& to = out[prefix + r.source];
      switch (r.change) {
        case KeyChange::Same: to = t; break;
        case KeyChange::Flatten: to = reshape(t, source_shape(r)); break;
        case KeyChange::Transpose: to = contiguous(transpose(t, 0, 1)); break;
        case KeyChange::Third:
          if (auto& list = thirds[r.source]; list.push_back(t), list.size() == 3) to = cat(list, 0);
      }
    }
    for (auto& [key, t] : tensors) {
      bool buffer = key.size() >= 12 && key.compare(key.size() - 12, 12, "position_ids") == 0;  // 0 ... 76, in files of old transformers
      SF_CHECK(buffer || known.count(key), "single file: '", key, "' is no tensor of the ", name, " of ", kind.title);
    }
  }
  return out;
}

}  // namespace sf::models
