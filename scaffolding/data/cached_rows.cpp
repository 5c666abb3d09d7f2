#include "scaffolding/data/cached_rows.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/io/config.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/ops/ops.h"

namespace sf::data {

namespace fs = std::filesystem;

namespace {

const char* const kIndex = "rows.json";
constexpr int64_t kMostFiles = 100000;

std::string file_name(const std::string& folder, int64_t number) {
  char name[32];
  std::snprintf(name, sizeof name, "rows-%05lld.safetensors", static_cast<long long>(number));
  return (fs::path(folder) / name).string();
}

std::string index_name(const std::string& folder) { return (fs::path(folder) / kIndex).string(); }

Shape row_shape(const Tensor& t) {
  Shape s = t.shape();
  s[0] = 1;
  return s;
}

}  // namespace

RowWriter::RowWriter(const std::string& folder, int64_t rows_per_file, std::string about)
    : folder_(folder), about_(std::move(about)), rows_per_file_(rows_per_file) {
  SF_CHECK(rows_per_file > 0, "RowWriter: rows_per_file must be above 0, got ", rows_per_file);
  std::error_code error;
  fs::create_directories(folder, error);
  SF_CHECK(fs::is_directory(folder, error), "RowWriter: cannot make the folder ", folder);
  SF_CHECK(!fs::exists(index_name(folder), error), "RowWriter: ", folder,
           " holds a cache already; read it with CachedRows or remove it");
  // of a writer that did not finish
  for (int64_t i = 0; i < kMostFiles && fs::remove(file_name(folder, i), error); ++i) {}
}

void RowWriter::add(const std::map<std::string, Tensor>& rows) {
  SF_CHECK(!rows.empty(), "RowWriter.add: needs at least one tensor");
  const int64_t n = rows.begin()->second && rows.begin()->second.ndim() ? rows.begin()->second.size(0) : 0;
  for (auto& [name, t] : rows) {
    check_defined("RowWriter.add", name.c_str(), t);
    SF_CHECK(t.ndim() > 0 && t.size(0) == n && n > 0, "RowWriter.add: ", name,
             " must be [N, ...] with the N of the others, above 0, got ", t.shape());
    if (parts_.empty()) continue;
    auto known = parts_.find(name);
    SF_CHECK(known != parts_.end() && parts_.size() == rows.size(),
             "RowWriter.add: the names must be those of the first call, got '", name, "' among ", rows.size());
    if (known->second.empty()) continue;
    const Tensor& first = known->second.front();
    SF_CHECK(row_shape(t) == row_shape(first) && t.dtype() == first.dtype(), "RowWriter.add: rows of ", name,
             " must be as before, ", first.dtype(), " ", row_shape(first), ", got ", t.dtype(), " ", row_shape(t));
  }
  for (auto& [name, t] : rows) parts_[name].push_back(t.detach().cpu());
  size_ += n;
  pending_ += n;
  while (pending_ >= rows_per_file_) write_file(rows_per_file_);
}

void RowWriter::write_file(int64_t rows) {
  SF_CHECK(files_ < kMostFiles, "RowWriter: more than ", kMostFiles, " files; give more rows_per_file");
  std::map<std::string, Tensor> whole;
  for (auto& [name, parts] : parts_) {
    Tensor all = parts.size() == 1 ? parts[0] : cat(parts, 0);
    whole[name] = all.narrow(0, 0, rows);
    parts = {all.narrow(0, rows, pending_ - rows).clone()};  // kept, even without rows, for the checks of the next call
  }
  io::save_safetensors(whole, file_name(folder_, files_++));
  pending_ -= rows;
}

void RowWriter::finish() {
  SF_CHECK(size_ > 0, "RowWriter.finish: no rows were added");
  if (pending_ > 0) write_file(pending_);
  io::write_config_file(io::Object::container(io::Object::Dict, {"rows", size_, "rows_per_file", rows_per_file_,
                                                                 "about", io::Object(std::string_view(about_))}),
                        index_name(folder_));
}

CachedRows::CachedRows(const std::string& folder, const std::optional<std::string>& about) {
  const std::string index = index_name(folder);
  std::error_code error;
  SF_CHECK(fs::is_regular_file(index, error), "CachedRows: there is no file ", index,
           "; RowWriter.finish() writes it when a cache is whole");
  io::Object dict = io::read_config_file(index);
  io::read_fields(index.c_str(), {{"rows", &size_}, {"rows_per_file", &rows_per_file_}, {"about", &about_}}, dict);
  SF_CHECK(!about || *about == about_, "CachedRows: the rows in ", folder, " are about '", about_, "', not '", *about,
           "'; remove the folder or give another");
  SF_CHECK(size_ > 0 && rows_per_file_ > 0 && (size_ - 1) / rows_per_file_ < kMostFiles, index,
           ": rows and rows_per_file must be above 0 and need at most ", kMostFiles, " files, got ", size_, " and ",
           rows_per_file_);
  const int64_t count = (size_ - 1) / rows_per_file_ + 1;
  for (int64_t i = 0; i < count; ++i) {
    const std::string path = file_name(folder, i);
    auto& file = files_.emplace_back(io::load_safetensors(path));
    const int64_t rows = std::min(rows_per_file_, size_ - i * rows_per_file_);
    SF_CHECK(!file.empty() && file.size() == files_[0].size(), path, ": must have the tensors of the first file");
    for (auto& [name, t] : file) {
      SF_CHECK(t.ndim() > 0 && t.size(0) == rows, path, ": ", name, " must have ", rows, " rows, got ", t.shape());
      auto first = files_[0].find(name);
      SF_CHECK(
          first != files_[0].end() && row_shape(t) == row_shape(first->second) && t.dtype() == first->second.dtype(),
          path, ": rows of ", name, " must be as those of the first file, got ", t.dtype(), " ", t.shape());
    }
  }
}

std::vector<std::string> CachedRows::names() const {
  std::vector<std::string> names;
  for (auto& [name, t] : files_[0]) names.push_back(name);
  return names;
}

std::map<std::string, Tensor> CachedRows::get(int64_t index) const {
  SF_CHECK_AS(IndexError, index >= 0 && index < size_, "CachedRows: row ", index, " of ", size_);
  std::map<std::string, Tensor> row;
  for (auto& [name, t] : files_[size_t(index / rows_per_file_)]) row.emplace(name, t.select(0, index % rows_per_file_));
  return row;
}

CachedRowsDataset::CachedRowsDataset(const std::string& folder, std::string image, std::string target)
    : rows_(folder), image_(std::move(image)), target_(std::move(target)) {
  auto names = rows_.names();
  auto check = [&](const std::string& name) {
    SF_CHECK(std::find(names.begin(), names.end(), name) != names.end(), "CachedRowsDataset: ", folder,
             " has no rows of '", name, "'");
  };
  check(image_);
  if (!target_.empty()) check(target_);
}

Sample CachedRowsDataset::get(int64_t index, SampleRandom&) const {
  auto row = rows_.get(index);
  Sample s;
  s.image = row[image_];
  if (!target_.empty()) s.target = row[target_];
  s.name = "row " + std::to_string(index);
  s.index = index;
  return s;
}

}  // namespace sf::data
