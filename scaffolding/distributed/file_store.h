// FileStore: a store in a file that every process can reach. Each change is appended under a lock (flock), and read by
// the others from where they had come to. Made for the few keys of a start: it asks the file again and again.
#pragma once
#include <mutex>

#include "scaffolding/distributed/store.h"

namespace sf::distributed {

class FileStore final : public Store {
 public:
  // world_size: after so many have been destroyed the file is removed; 0: it stays. RuntimeError where the file cannot
  // be made. A file of an earlier run must be removed first: its keys would be taken for this one's.
  explicit FileStore(std::string path, int world_size = 0);
  ~FileStore() override;
  const std::string& path() const { return path_; }

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, double timeout_seconds) override;
  using Store::wait;
  bool delete_key(const std::string& key) override;
  int64_t num_keys() override;
  void append(const std::string& key, const std::string& value) override;

 private:
  class Locked;
  std::string path_;
  int world_size_;
  std::mutex mutex_;
  StoreTable table_;
  int64_t read_to_ = 0;  // bytes of the file that are in the table
};

}  // namespace sf::distributed
