// SHA-256 of model files, by which AUTOMATIC1111's clients name them. Gigabytes take seconds: they are computed on a
// thread of its own, and kept in a file by path, size and time of change. Any thread may call.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace sf::server {

class FileHashes {
 public:
  // cache: a file of JSON, which is made; one that is damaged counts as empty. "": nothing is kept.
  explicit FileHashes(std::string cache);
  ~FileHashes();
  FileHashes(const FileHashes&) = delete;
  FileHashes& operator=(const FileHashes&) = delete;

  void compute(const std::vector<std::string>& files);  // those that are not known, behind what was asked for before
  void wait();                                          // until all of them are
  std::string of(const std::string& file) const;        // 64 digits; "" where it is not known yet
  std::string file_of(std::string_view digits) const;   // whose hash begins with these, 8 at least; "": none

 private:
  struct Known {
    uint64_t bytes = 0;
    int64_t changed = 0;  // nanoseconds, as the file system counts
    std::string hash;
  };
  static Known state_of(const std::string& file);
  void add(const std::string& file);
  void save() const;
  std::string cache_;
  void work();
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<std::string> waiting_;
  bool works_ = false;
  std::map<std::string, Known> known_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace sf::server
