// AppendingFile: a log that grows line by line. What was written survives the end of the process, however it ends; sync()
// makes it survive the machine's. Errors are RuntimeError naming path and reason. One thread at a time.
#pragma once
#include <string>
#include <string_view>

namespace sf::train {

class AppendingFile {
 public:
  explicit AppendingFile(const std::string& path);  // made where it is not there
  ~AppendingFile();
  AppendingFile(const AppendingFile&) = delete;
  AppendingFile& operator=(const AppendingFile&) = delete;
  void write(std::string_view bytes);
  void sync();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace sf::train
