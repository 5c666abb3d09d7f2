#include "scaffolding/models/names/named_checkpoint.h"

#include <algorithm>

#include "scaffolding/ops/quantize/gguf_format.h"

namespace sf::models {

namespace {

std::string listed(const std::vector<std::string>& all, const char* quote = "") {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(3, all.size()); ++i)
    out += std::string(i ? ", " : "") + quote + all[i] + quote;
  return all.size() > 3 ? out + " and " + std::to_string(all.size() - 3) + " more" : out;
}

}  // namespace

std::vector<std::string> NamedCheckpoint::names() const {
  std::vector<std::string> out;
  for (auto& t : names_.tensors()) out.push_back(t.name);
  return out;
}

const NamedTensor& NamedCheckpoint::named(const std::string& name) const {
  const NamedTensor* t = names_.find(name);
  SF_CHECK(t, who_, " has no tensor '", name, "'");
  return *t;
}

io::CheckpointEntry NamedCheckpoint::entry(const std::string& name) const {
  const NamedTensor& t = named(name);
  return {name, file_->entry(names_.first_source(t).name).dtype, t.shape};
}

Tensor NamedCheckpoint::get(const std::string& name) const {
  return names_.read(named(name), [&](const std::string& source) { return file_->get(source); });
}

std::optional<io::StoredBlocks> NamedCheckpoint::blocks(const std::string& name) const {
  const NamedTensor& t = named(name);
  const auto pieces = names_.pieces(t);
  const NameSource& source = names_.first_source(t);
  const bool as_it_lies = source.change != NameChange::Transposed && source.change != NameChange::OneMore;
  if (pieces.size() != 1 || !as_it_lies || t.shape.empty()) return {};
  auto* file = dynamic_cast<const io::StoresBlocks*>(file_.get());
  auto all = file ? file->blocks(source.name) : std::nullopt;
  const int64_t rows = source.ours.empty() ? 0 : source.ours[0];
  if (!all || rows == 0 || pieces[0].rows == rows) return all;
  if (all->scale) {
    all->bytes = all->bytes.narrow(0, pieces[0].source_row, pieces[0].rows);
    if (all->scale.numel() > 1) all->scale = all->scale.narrow(0, pieces[0].source_row, pieces[0].rows);
    return all;
  }
  // Some rows of the source: whole blocks where a row is.
  const int64_t bytes = all->bytes.numel() / rows;
  if (all->bytes.numel() % rows != 0 || numel(t.shape) / t.shape[0] % find_gguf_format(all->format)->block != 0)
    return {};
  all->bytes = all->bytes.narrow(0, pieces[0].source_row * bytes, pieces[0].rows * bytes);
  return all;
}

void check_sources(const NameTable& names, const io::Checkpoint& file, const std::string& who) {
  const NameTable::Differences differ = names.differences(file);
  auto &missing = differ.missing, &wrong = differ.wrong;
  SF_CHECK(missing.empty(), who, " lacks ", missing.size(),
           missing.size() == 1 ? " tensor: " : " tensors: ", listed(missing, "'"));
  SF_CHECK(wrong.empty(), who, " has ", wrong.size(), wrong.size() == 1 ? " tensor" : " tensors",
           " of another shape: ", listed(wrong), "; for a model of another size pass its config");
}

}  // namespace sf::models
