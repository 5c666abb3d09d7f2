// AppendingFile: a file that grows: a log, or one of a checkpoint. What was written survives the end of the process,
// however it ends; sync() makes it survive the machine's. Errors are RuntimeError naming path and reason.
// One thread at a time.
#pragma once
#include <string_view>

#include "scaffolding/io/file.h"

namespace sf::train {

class AppendingFile final : public io::Sink {
 public:
  explicit AppendingFile(const std::string& path);  // made where it is not there
  ~AppendingFile() override;
  AppendingFile(const AppendingFile&) = delete;
  AppendingFile& operator=(const AppendingFile&) = delete;
  void write(const void* data, size_t bytes) override;
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  void sync();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace sf::train
