#include "scaffolding/io/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>

#include "scaffolding/io/byte_reader.h"
#include "scaffolding/io/checkpoint_head.h"
#include "scaffolding/io/formats/gguf.h"
#include "scaffolding/io/formats/npy.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/formats/sharded.h"
#include "scaffolding/io/formats/torch_file.h"
#include "scaffolding/io/stored_blocks.h"

namespace sf::io {

namespace fs = std::filesystem;

namespace {

class SafetensorsCheckpoint final : public Checkpoint {
 public:
  explicit SafetensorsCheckpoint(const Bytes& file) : file_(file) {}
  const char* kind() const override { return "safetensors"; }
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (auto& e : file_.entries()) out.push_back(e.name);
    return out;
  }
  bool contains(const std::string& name) const override { return file_.contains(name); }
  CheckpointEntry entry(const std::string& name) const override {
    return {name, file_.entry(name).dtype, file_.entry(name).shape};
  }
  std::vector<CheckpointEntry> entries() const override {
    std::vector<CheckpointEntry> out;
    out.reserve(file_.entries().size());
    for (auto& e : file_.entries()) out.push_back({e.name, e.dtype, e.shape});
    return out;
  }
  Tensor get(const std::string& name) const override { return file_.get(name); }
  std::map<std::string, std::string> metadata() const override { return file_.metadata(); }

 private:
  SafetensorsFile file_;
};

class GgufCheckpoint final : public Checkpoint, public StoresBlocks {
 public:
  explicit GgufCheckpoint(const Bytes& file, uint64_t most_header = UINT64_MAX) : file_(file, most_header) {}
  const char* kind() const override { return "gguf"; }
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (auto& e : file_.entries()) out.push_back(e.name);
    return out;
  }
  bool contains(const std::string& name) const override { return file_.contains(name); }
  CheckpointEntry entry(const std::string& name) const override {
    return {name, std::string(file_.entry(name).format->name), file_.entry(name).shape};
  }
  Tensor get(const std::string& name) const override { return file_.get(name); }
  std::optional<StoredBlocks> blocks(const std::string& name) const override {
    auto& e = file_.entry(name);
    if (!e.format->blocks) return {};
    return StoredBlocks{file_.stored(name), std::string(e.format->name)};
  }
  std::map<std::string, std::string> metadata() const override {  // texts
    const Object all = file_.metadata();
    std::map<std::string, std::string> out;
    for (size_t i = 0; i + 1 < all.items().size(); i += 2)
      if (all.items()[i + 1].is(Object::String)) out.emplace(all.items()[i].text(), all.items()[i + 1].text());
    return out;
  }

 private:
  GgufFile file_;
};

class NpzCheckpoint final : public Checkpoint {
 public:
  explicit NpzCheckpoint(const Bytes& file) : file_(file) {}
  const char* kind() const override { return "npz"; }
  std::vector<std::string> names() const override { return file_.names(); }
  bool contains(const std::string& name) const override {
    return std::count(file_.names().begin(), file_.names().end(), name) > 0;
  }
  CheckpointEntry entry(const std::string& name) const override {
    NpyHeader h = file_.header(name);
    return {name, h.kind + std::to_string(h.item), h.shape};
  }
  Tensor get(const std::string& name) const override { return file_.get(name); }

 private:
  NpzFile file_;
};

// What is in memory anyway: a torch file's tree (whose tensors still borrow the file), an .npy file's array.
class TreeCheckpoint final : public Checkpoint {
 public:
  TreeCheckpoint(const char* kind, std::string file, std::vector<std::pair<std::string, Tensor>> tensors)
      : kind_(kind), file_(std::move(file)) {
    for (auto& [name, t] : tensors) {
      SF_CHECK(tensors_.emplace(name, t).second, file_, ": two tensors have the name '", name, "'");
      names_.push_back(name);
    }
  }
  const char* kind() const override { return kind_; }
  std::vector<std::string> names() const override { return names_; }
  bool contains(const std::string& name) const override { return tensors_.count(name) > 0; }
  CheckpointEntry entry(const std::string& name) const override {
    Tensor t = get(name);
    return {name, std::string(sf::name(t.dtype())), t.shape()};
  }
  Tensor get(const std::string& name) const override {
    auto it = tensors_.find(name);
    SF_CHECK(it != tensors_.end(), file_, ": there is no tensor '", name, "'");
    return it->second;
  }

 private:
  const char* kind_;
  std::string file_;
  std::vector<std::string> names_;
  std::map<std::string, Tensor> tensors_;
};

// A torch file with deflated entries: what is in it is told without inflating them, and a small file may be gigabytes.
class DeflatedCheckpoint final : public Checkpoint {
 public:
  explicit DeflatedCheckpoint(const Bytes& file) : file_(file), shapes_(tree(file, true)) {}
  const char* kind() const override { return shapes_.kind(); }
  std::vector<std::string> names() const override { return shapes_.names(); }
  bool contains(const std::string& name) const override { return shapes_.contains(name); }
  CheckpointEntry entry(const std::string& name) const override { return shapes_.entry(name); }
  Tensor get(const std::string& name) const override {
    std::lock_guard lock(mutex_);
    if (!values_) values_ = std::make_unique<const TreeCheckpoint>(tree(file_, false));
    return values_->get(name);
  }

 private:
  static TreeCheckpoint tree(const Bytes& file, bool shapes_only) {
    return {"torch", file.name, named_tensors(load_torch(file, {.placeholders = true, .shapes_only = shapes_only}))};
  }
  Bytes file_;
  TreeCheckpoint shapes_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<const TreeCheckpoint> values_;
};

class ShardedCheckpoint final : public Checkpoint {
 public:
  explicit ShardedCheckpoint(const Bytes& index) : path_(index.name), index_(read_shard_index(index)) {
    fs::path folder = fs::path(path_).parent_path();
    std::error_code error;
    for (auto& [name, file] : index_.weight_map) {
      auto [it, fresh] = shards_.try_emplace(file);
      if (!fresh) continue;
      it->second.path = (folder / file).string();
      SF_CHECK_AS(RuntimeError, fs::is_regular_file(it->second.path, error), path_, ": the shard '", file,
                  "' that holds '", name, "' is not there");
    }
  }
  const char* kind() const override { return "sharded"; }
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (auto& [name, file] : index_.weight_map) out.push_back(name);
    return out;
  }
  bool contains(const std::string& name) const override { return index_.weight_map.count(name) > 0; }
  CheckpointEntry entry(const std::string& name) const override { return shard_of(name).entry(name); }
  Tensor get(const std::string& name) const override { return shard_of(name).get(name); }
  std::map<std::string, std::string> metadata() const override { return index_.metadata; }

 private:
  struct Shard {
    std::string path;
    mutable std::shared_ptr<const Checkpoint> open;
  };
  const Checkpoint& shard_of(const std::string& name) const {
    auto it = index_.weight_map.find(name);
    SF_CHECK(it != index_.weight_map.end(), path_, ": there is no tensor '", name, "'");
    const Shard& shard = shards_.at(it->second);
    std::lock_guard lock(mutex_);
    if (!shard.open) {
      Bytes file = Bytes::open(shard.path);
      SF_CHECK(file.unmapped || !is_shard_index(file), path_, ": the shard '", it->second, "' is itself an index");
      auto opened = open_checkpoint(file);
      for (auto& [tensor, where] : index_.weight_map)
        SF_CHECK(where != it->second || opened->contains(tensor), path_, ": the index says that '", tensor, "' is in ",
                 where, ", which has no such tensor");
      shard.open = std::move(opened);
    }
    return *shard.open;
  }

  std::string path_;
  ShardIndex index_;
  std::map<std::string, Shard> shards_;
  mutable std::mutex mutex_;
};

// The one file of a folder that is meant by its name: an index before a checkpoint.
std::string in_folder(const std::string& folder) {
  for (std::vector<std::string_view> endings :
       {std::vector<std::string_view>{".index.json"}, {".safetensors"}, {".gguf"}, {".bin", ".pt", ".pth", ".ckpt"}}) {
    std::vector<std::string> found;
    for (auto& e : fs::directory_iterator(folder)) {
      std::string name = e.path().filename().string();
      for (auto ending : endings)
        if (name.ends_with(ending)) found.push_back(e.path().string());
    }
    std::sort(found.begin(), found.end());
    SF_CHECK(found.size() <= 1, folder, ": has several checkpoints, such as ", found[0], " and ", found[1],
             "; name one");
    if (found.size() == 1) return found[0];
  }
  fail(folder, ": is a folder without a checkpoint");
}

// A header length and the object that follows it. Read as a length, text would be over 2^56.
bool looks_like_safetensors(const Bytes& file) {
  return file.size >= 9 && file.data[8] == std::byte('{') && ByteReader(file).get<uint64_t>() < uint64_t(1) << 56;
}

}  // namespace

std::vector<CheckpointEntry> Checkpoint::entries() const {
  std::vector<CheckpointEntry> out;
  for (auto& name : names()) out.push_back(entry(name));
  return out;
}

std::shared_ptr<const Checkpoint> open_checkpoint(const Bytes& file) {
  if (file.unmapped) {  // its tensors are mapped as they are asked for; the other formats are read as a whole
    const Bytes head = file.slice(0, std::min<uint64_t>(file.size, 16)).mapped();
    if (looks_like_safetensors(head)) return std::make_shared<SafetensorsCheckpoint>(file);
    return open_checkpoint(file.mapped());  // which says why it cannot be
  }
  if (GgufFile::recognises(file)) return std::make_shared<GgufCheckpoint>(file);
  if (is_npy(file))
    return std::make_shared<TreeCheckpoint>("npy", file.name,
                                            std::vector<std::pair<std::string, Tensor>>{{"array", load_npy(file)}});
  if (ZipReader::recognises(file)) {
    ZipReader zip(file);
    auto& entries = zip.entries();
    bool arrays = !entries.empty() &&
                  std::all_of(entries.begin(), entries.end(), [](auto& e) { return e.name.ends_with(".npy"); });
    if (arrays) return std::make_shared<NpzCheckpoint>(file);
    if (std::any_of(entries.begin(), entries.end(), [](auto& e) { return e.method != 0; }))
      return std::make_shared<DeflatedCheckpoint>(file);
  }
  // Placeholders do nothing, and a program that asks for tensors does not see them.
  // The length of a safetensors file's header may begin as a pickle does: 640 is 80 02.
  const bool header_fits = looks_like_safetensors(file) && ByteReader(file).get<uint64_t>() <= file.size - 8;
  if (ZipReader::recognises(file) || (is_pickle(file) && !header_fits))
    return std::make_shared<TreeCheckpoint>("torch", file.name,
                                            named_tensors(load_torch(file, {.placeholders = true})));
  if (looks_like_safetensors(file)) return std::make_shared<SafetensorsCheckpoint>(file);
  if (is_shard_index(file)) return std::make_shared<ShardedCheckpoint>(file);
  fail(file.name,
       ": is no checkpoint that is known here: safetensors, an index of shards, PyTorch's zip or pickle, GGUF, .npy or "
       ".npz");
}

std::shared_ptr<const Checkpoint> open_checkpoint(const std::string& path) {
  std::error_code error;
  return open_checkpoint(Bytes::open(fs::is_directory(path, error) ? in_folder(path) : path));
}

std::shared_ptr<const Checkpoint> open_checkpoint_head(const std::string& path) {
  return open_checkpoint_head(Bytes::open(path));
}

std::shared_ptr<const Checkpoint> open_checkpoint_head(const Bytes& whole) {
  const Bytes begin = whole.slice(0, std::min<uint64_t>(whole.size, 16)).mapped();
  const bool torch = ZipReader::recognises(begin);
  if (!torch && !GgufFile::recognises(begin) && looks_like_safetensors(begin)) {
    const uint64_t header = ByteReader(begin).get<uint64_t>();
    SF_CHECK(header <= kMostHead || header > whole.size - 8, whole.name, ": the header has ", header,
             " bytes, at most ", kMostHead, " are looked at");
    return std::make_shared<SafetensorsCheckpoint>(whole);
  }
  const Bytes file = whole.mapped();
  if (GgufFile::recognises(file)) return std::make_shared<GgufCheckpoint>(file, kMostHead);
  SF_CHECK(torch || is_pickle(file), whole.name, ": is no safetensors, GGUF or PyTorch file");
  return std::make_shared<TreeCheckpoint>(
      "torch", whole.name,
      named_tensors(load_torch(file, {.placeholders = true, .shapes_only = true, .most_head = kMostPickleHead})));
}

std::map<std::string, Tensor> load_checkpoint(const std::string& path) {
  auto file = open_checkpoint(path);
  std::map<std::string, Tensor> out;
  for (auto& name : file->names()) out[name] = file->get(name);
  return out;
}

std::shared_ptr<const Checkpoint> checkpoint_of(std::map<std::string, Tensor> tensors) {
  return std::make_shared<TreeCheckpoint>("tensors", "the tensors given",
                                          std::vector<std::pair<std::string, Tensor>>(tensors.begin(), tensors.end()));
}

}  // namespace sf::io
