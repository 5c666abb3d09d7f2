// Store: a table of keys and values that processes share to find each other. It holds addresses and ids, no tensors.
//   TCPStore (tcp_store.h)   a server in one process, in the protocol of PyTorch's TCPStore
//   FileStore (file_store.h) a file that every process can reach
//   HashStore                the memory of one process, for its threads
//   PrefixStore              another store, below a name of its own
// Thread-safe, apart from set_timeout. What does not come in time is a RuntimeError that names the keys.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sf::distributed {

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual std::string get(const std::string& key) = 0;  // waits until the key is there
  // Adds to a number, 0 where there is none, and returns the sum. RuntimeError for a key that holds no number.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  // Sets the key where it holds `expected`, or where expected is "" and there is no such key; what it holds then, or
  // expected where there is none.
  virtual std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) = 0;
  virtual bool check(const std::vector<std::string>& keys) = 0;  // whether all are there
  virtual void wait(const std::vector<std::string>& keys, double timeout_seconds) = 0;
  virtual bool delete_key(const std::string& key) = 0;
  virtual int64_t num_keys() = 0;
  virtual void append(const std::string& key, const std::string& value) = 0;

  void wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }
  double timeout() const { return timeout_; }
  void set_timeout(double seconds);  // of get, and of wait without one; ValueError unless positive and below 1e8

 protected:
  double timeout_ = 300;
};

// What a store's server and a HashStore keep. Not thread-safe.
class StoreTable {
 public:
  void set(const std::string& key, std::string value) { values_[key] = std::move(value); }
  const std::string* find(const std::string& key) const;
  int64_t add(const std::string& key, int64_t amount);
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  bool erase(const std::string& key) { return values_.erase(key) > 0; }
  void append(const std::string& key, const std::string& value) { values_[key] += value; }
  const std::map<std::string, std::string>& values() const { return values_; }

 private:
  std::map<std::string, std::string> values_;
};

class HashStore final : public Store {
 public:
  HashStore();
  HashStore(const HashStore&) = delete;
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
  struct State;
  std::shared_ptr<State> state_;
};

class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store);
  const std::string& prefix() const { return prefix_; }
  const std::shared_ptr<Store>& underlying_store() const { return store_; }
  void set(const std::string& key, const std::string& value) override { store_->set(named(key), value); }
  std::string get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(named(key), amount); }
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override {
    return store_->compare_set(named(key), expected, desired);
  }
  bool check(const std::vector<std::string>& keys) override { return store_->check(named(keys)); }
  void wait(const std::vector<std::string>& keys, double timeout_seconds) override {
    store_->wait(named(keys), timeout_seconds);
  }
  using Store::wait;
  bool delete_key(const std::string& key) override { return store_->delete_key(named(key)); }
  int64_t num_keys() override { return store_->num_keys(); }
  void append(const std::string& key, const std::string& value) override { store_->append(named(key), value); }

 private:
  std::string named(const std::string& key) const { return prefix_ + "/" + key; }
  std::vector<std::string> named(std::vector<std::string> keys) const;
  std::string prefix_;
  std::shared_ptr<Store> store_;
};

// "'a', 'b' and 3 more", for messages.
std::string listed(const std::vector<std::string>& keys);
// ValueError unless positive and below 1e8: longer ones overflow clocks.
void check_timeout(const char* who, double seconds);

}  // namespace sf::distributed
