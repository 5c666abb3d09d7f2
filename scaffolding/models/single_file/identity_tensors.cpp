#include "scaffolding/models/single_file/identity_tensors.h"

#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

class WithIdentities final : public io::Checkpoint {
 public:
  WithIdentities(std::shared_ptr<const io::Checkpoint> file, std::map<std::string, int64_t> rows, std::string like)
      : file_(std::move(file)), rows_(std::move(rows)), like_(std::move(like)) {}
  const char* kind() const override { return file_->kind(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> all = file_->names();
    for (auto& [name, rows] : rows_) all.push_back(name);
    return all;
  }
  bool contains(const std::string& name) const override { return rows_.contains(name) || file_->contains(name); }
  io::CheckpointEntry entry(const std::string& name) const override {
    auto found = rows_.find(name);
    if (found == rows_.end()) return file_->entry(name);
    return {name, file_->entry(like_).dtype, {found->second, found->second}};
  }
  Tensor get(const std::string& name) const override {
    auto found = rows_.find(name);
    return found == rows_.end() ? file_->get(name) : eye(found->second, {}, kFloat32).to(file_->get(like_).dtype());
  }
  std::map<std::string, std::string> metadata() const override { return file_->metadata(); }

 private:
  std::shared_ptr<const io::Checkpoint> file_;
  std::map<std::string, int64_t> rows_;  // of each identity
  std::string like_;                     // a tensor of the file that has their dtype
};

}  // namespace

std::shared_ptr<const io::Checkpoint> with_identities(std::shared_ptr<const io::Checkpoint> file,
                                                      const NameTable& model, const std::vector<std::string>& tensors) {
  std::map<std::string, int64_t> rows;
  for (auto& name : tensors) {
    const NamedTensor* t = model.find(name);
    if (!t || t->shape.size() != 2 || t->shape[0] != t->shape[1]) continue;
    const std::string& source = model.first_source(*t).name;
    if (!file->contains(source)) rows.emplace(source, t->shape[0]);
  }
  if (rows.empty()) return file;
  for (auto& source : model.sources())
    if (file->contains(source.name))
      return std::make_shared<WithIdentities>(std::move(file), std::move(rows), source.name);
  return file;
}

}  // namespace sf::models
