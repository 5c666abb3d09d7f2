// Rows of tensors in a folder: what is computed once from a data set (latents, embedded captions) and read in every
// epoch of a training. rows-00000.safetensors and so on hold equally many rows each, the last one the rest; rows.json,
// written last, says that all are there. Files are mapped, so that only what is read is in memory.
#pragma once
#include <map>
#include <memory>
#include <optional>

#include "scaffolding/data/dataset.h"

namespace sf::data {

// Used from one thread. Without finish() the folder holds no cache, and the next writer begins anew.
class RowWriter {
 public:
  // The folder is made where it is not there. ValueError when it holds a whole cache. about: what the rows were
  // computed from and how, for readers who want others than these to be refused.
  explicit RowWriter(const std::string& folder, int64_t rows_per_file = 256, std::string about = {});
  // Tensors [N, ...] by name, with the names, dtypes and sizes after the first dimension of the first call.
  void add(const std::map<std::string, Tensor>& rows);
  int64_t size() const { return size_; }
  void finish();  // ValueError when there are no rows

 private:
  void write_file(int64_t rows);
  std::string folder_, about_;
  int64_t rows_per_file_, size_ = 0, pending_ = 0, files_ = 0;
  std::map<std::string, Tensors> parts_;  // of the file to come
};

// Thread-safe. Tensors borrow mapped pages and keep them alive.
class CachedRows {
 public:
  // ValueError for a folder without a whole cache, for files that do not fit rows.json,
  // and for rows about something else.
  explicit CachedRows(const std::string& folder, const std::optional<std::string>& about = {});
  int64_t size() const { return size_; }
  const std::string& about() const { return about_; }
  std::vector<std::string> names() const;
  std::map<std::string, Tensor> get(int64_t index) const;  // IndexError outside of 0 .. size() - 1

 private:
  int64_t size_ = 0, rows_per_file_ = 1;
  std::string about_;
  std::vector<std::map<std::string, Tensor>> files_;
};

// The rows of two tensors of a cache as samples: `image`, and `target` where it is not empty.
class CachedRowsDataset final : public Dataset {
 public:
  explicit CachedRowsDataset(const std::string& folder, std::string image = "latents",
                             std::string target = "encoder_hidden_states");
  int64_t size() const override { return rows_.size(); }
  Sample get(int64_t index, SampleRandom& random) const override;

 private:
  CachedRows rows_;
  std::string image_, target_;
};

}  // namespace sf::data
