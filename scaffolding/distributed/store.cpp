#include "scaffolding/distributed/store.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "scaffolding/core/error.h"

namespace sf::distributed {

void check_timeout(const char* who, double seconds) {
  SF_CHECK(seconds > 0 && seconds < 1e8, who, ": timeout must be positive and below 1e8 seconds, got ", seconds);
}

std::string listed(const std::vector<std::string>& keys) {
  constexpr size_t kShown = 4;
  std::string text;
  for (size_t i = 0; i < std::min(keys.size(), kShown); ++i) text += (i ? ", '" : "'") + keys[i] + "'";
  if (keys.size() > kShown) text += " and " + std::to_string(keys.size() - kShown) + " more";
  return text;
}

void Store::set_timeout(double seconds) {
  check_timeout("Store.set_timeout", seconds);
  timeout_ = seconds;
}

const std::string* StoreTable::find(const std::string& key) const {
  auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

int64_t StoreTable::add(const std::string& key, int64_t amount) {
  int64_t before = 0, sum = 0;
  if (const std::string* held = find(key)) {
    auto [end, error] = std::from_chars(held->data(), held->data() + held->size(), before);
    SF_CHECK_AS(RuntimeError, error == std::errc() && end == held->data() + held->size(), "Store.add: key '", key,
                "' holds no number");
  }
  SF_CHECK_AS(RuntimeError, !__builtin_add_overflow(before, amount, &sum), "Store.add: key '", key, "': ", before,
              " + ", amount, " does not fit 64 bits");
  values_[key] = std::to_string(sum);
  return sum;
}

std::string StoreTable::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  auto it = values_.find(key);
  if (it == values_.end()) {
    if (!expected.empty()) return expected;
    return values_[key] = desired;
  }
  if (it->second == expected) it->second = desired;
  return it->second;
}

struct HashStore::State {
  bool has(const std::vector<std::string>& keys) const {
    return std::all_of(keys.begin(), keys.end(), [&](auto& key) { return table.find(key); });
  }
  std::mutex mutex;
  std::condition_variable changed;
  StoreTable table;
};
HashStore::HashStore() : state_(std::make_shared<State>()) {}

void HashStore::set(const std::string& key, const std::string& value) {
  std::lock_guard lock(state_->mutex);
  state_->table.set(key, value);
  state_->changed.notify_all();
}

std::string HashStore::get(const std::string& key) {
  wait({key}, timeout_);
  std::lock_guard lock(state_->mutex);
  const std::string* held = state_->table.find(key);
  SF_CHECK_AS(RuntimeError, held, "HashStore.get: key '", key, "' has just been deleted");
  return *held;
}

int64_t HashStore::add(const std::string& key, int64_t amount) {
  std::lock_guard lock(state_->mutex);
  int64_t sum = state_->table.add(key, amount);
  state_->changed.notify_all();
  return sum;
}

std::string HashStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  std::lock_guard lock(state_->mutex);
  std::string held = state_->table.compare_set(key, expected, desired);
  state_->changed.notify_all();
  return held;
}

bool HashStore::check(const std::vector<std::string>& keys) {
  std::lock_guard lock(state_->mutex);
  return state_->has(keys);
}

void HashStore::wait(const std::vector<std::string>& keys, double timeout_seconds) {
  check_timeout("HashStore.wait", timeout_seconds);
  std::unique_lock lock(state_->mutex);
  bool came =
      state_->changed.wait_for(lock, std::chrono::duration<double>(timeout_seconds), [&] { return state_->has(keys); });
  SF_CHECK_AS(RuntimeError, came, "HashStore.wait: ", listed(keys), " did not come within ", timeout_seconds, " s");
}

bool HashStore::delete_key(const std::string& key) {
  std::lock_guard lock(state_->mutex);
  return state_->table.erase(key);
}

int64_t HashStore::num_keys() {
  std::lock_guard lock(state_->mutex);
  return int64_t(state_->table.values().size());
}

void HashStore::append(const std::string& key, const std::string& value) {
  std::lock_guard lock(state_->mutex);
  state_->table.append(key, value);
  state_->changed.notify_all();
}

PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> store)
    : prefix_(std::move(prefix)), store_(std::move(store)) {
  SF_CHECK_AS(TypeError, store_, "PrefixStore: needs a store");
  timeout_ = store_->timeout();
}

std::string PrefixStore::get(const std::string& key) {
  store_->wait({named(key)}, timeout_);
  return store_->get(named(key));
}

std::vector<std::string> PrefixStore::named(std::vector<std::string> keys) const {
  for (auto& key : keys) key = named(key);
  return keys;
}

}  // namespace sf::distributed
