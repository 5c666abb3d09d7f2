#include "scaffolding/distributed/tcp_store.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "scaffolding/core/error.h"
#include "scaffolding/distributed/store_server.h"

namespace sf::distributed {

namespace {

constexpr const char* kJoined = "init/";  // how many clients have come, as PyTorch's clients count

template <class T> T number(const std::string& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// "/": PyTorch's clients put it before the keys of users.
std::string question(Query query, std::initializer_list<std::string> texts = {}) {
  std::string message(1, char(query));
  bool first = true;
  for (auto& text : texts) {
    put_text(message, first ? "/" + text : text);
    first = false;
  }
  return message;
}
std::string question(Query query, const std::vector<std::string>& keys) {
  std::string message(1, char(query));
  put<uint64_t>(message, keys.size());
  for (auto& key : keys) put_text(message, "/" + key);
  return message;
}

void check_key(const std::string& key) {
  SF_CHECK(key.size() < StoreProtocol::kMaxKeyBytes, "TCPStore: a key has at most ", StoreProtocol::kMaxKeyBytes - 1,
           " bytes, got ", key.size());
}
void check_value(const std::string& value) {
  SF_CHECK(value.size() <= StoreProtocol::kMaxValueBytes, "TCPStore: a value has at most ",
           StoreProtocol::kMaxValueBytes, " bytes, got ", value.size());
}

}  // namespace

TCPStore::TCPStore(const TCPStoreOptions& o) : host_(o.host), port_(o.port) {
  SF_CHECK(o.port >= (o.is_server ? 0 : 1) && o.port < 65536, "TCPStore: port must be 1 to 65535, got ", o.port);
  SF_CHECK(o.world_size >= 0 && o.world_size <= 65536, "TCPStore: world_size must be 0 to 65536, got ", o.world_size);
  check_timeout("TCPStore", o.timeout_seconds);
  timeout_ = o.timeout_seconds;
  Deadline deadline = in_seconds(o.timeout_seconds);
  if (o.is_server) {
    server_ = std::make_unique<StoreServer>(o.port);
    port_ = server_->port();
  }
  socket_ = Socket::connect(o.is_server ? "127.0.0.1" : host_, port_, deadline);
  std::string greeting(1, char(Query::Validate));
  put<uint32_t>(greeting, kStoreMagic);
  auto nonce = uint32_t(getpid());
  greeting += char(Query::Ping);
  put<uint32_t>(greeting, nonce);
  std::string answer(sizeof nonce, 0);
  try {
    socket_.send(greeting.data(), greeting.size(), deadline);
    socket_.receive(answer.data(), answer.size(), std::min(deadline, in_seconds(30)));
  } catch (const RuntimeError& e) {
    fail<RuntimeError>("TCPStore: ", host_, ":", port_, " answers, but not as a store does; does another program ",
                       "listen there? (", e.what(), ")");
  }
  SF_CHECK_AS(RuntimeError, number<uint32_t>(answer) == nonce, "TCPStore: ", host_, ":", port_,
              " answers, but not as a store does; does another program listen there?");
  if (o.world_size > 0) {
    std::string joined(1, char(Query::Add));
    put_text(joined, kJoined);
    put<int64_t>(joined, 1);
    auto came = number<int64_t>(ask(joined, 8));
    while (o.is_server && came < o.world_size) {
      SF_CHECK_AS(RuntimeError, std::chrono::steady_clock::now() < deadline, "TCPStore: ", came, " of ", o.world_size,
                  " processes came within ", o.timeout_seconds, " s");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::string again(1, char(Query::Get));
      put_text(again, kJoined);
      std::lock_guard lock(mutex_);
      socket_.send(again.data(), again.size(), answer_deadline());
      came = std::stoll(text_answer());
    }
  }
}

TCPStore::~TCPStore() = default;

// The server answers at once: where it does not, its process hangs.
Deadline TCPStore::answer_deadline() const { return in_seconds(std::max(timeout_, 1.0)); }

std::string TCPStore::ask(const std::string& message, size_t answer_bytes) {
  std::lock_guard lock(mutex_);
  socket_.send(message.data(), message.size(), answer_deadline());
  std::string answer(answer_bytes, 0);
  socket_.receive(answer.data(), answer.size(), answer_deadline());
  return answer;
}

std::string TCPStore::text_answer() {
  uint64_t size = 0;
  socket_.receive(&size, sizeof size, answer_deadline());
  SF_CHECK_AS(RuntimeError, size <= StoreProtocol::kMaxMessageBytes, "TCPStore: ", host_, ":", port_,
              " announces a value of ", size, " bytes; is it a store?");
  std::string text(size, 0);
  socket_.receive(text.data(), text.size(), answer_deadline());
  return text;
}

void TCPStore::set(const std::string& key, const std::string& value) {
  check_key(key), check_value(value);
  ask(question(Query::Set, {key, value}), 0);
}

void TCPStore::append(const std::string& key, const std::string& value) {
  check_key(key), check_value(value);
  ask(question(Query::Append, {key, value}), 0);
}

std::string TCPStore::get(const std::string& key) {
  check_key(key);
  std::lock_guard lock(mutex_);
  wait_locked({key}, timeout_);
  std::string message = question(Query::Get, {key});
  socket_.send(message.data(), message.size(), answer_deadline());
  return text_answer();
}

int64_t TCPStore::add(const std::string& key, int64_t amount) {
  check_key(key);
  std::string message = question(Query::Add, {key});
  put<int64_t>(message, amount);
  return number<int64_t>(ask(message, 8));
}

std::string TCPStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  check_key(key), check_value(expected), check_value(desired);
  std::string message = question(Query::CompareSet, {key, expected, desired});
  std::lock_guard lock(mutex_);
  socket_.send(message.data(), message.size(), answer_deadline());
  return text_answer();
}

bool TCPStore::check(const std::vector<std::string>& keys) {
  for (auto& key : keys) check_key(key);
  return ask(question(Query::Check, keys), 1)[0] == 0;
}

void TCPStore::wait(const std::vector<std::string>& keys, double timeout_seconds) {
  check_timeout("TCPStore.wait", timeout_seconds);
  for (auto& key : keys) check_key(key);
  std::lock_guard lock(mutex_);
  wait_locked(keys, timeout_seconds);
}

void TCPStore::wait_locked(const std::vector<std::string>& keys, double timeout_seconds) {
  std::string message = question(Query::Wait, keys);
  socket_.send(message.data(), message.size(), answer_deadline());
  char answer = 1;
  if (socket_.readable(in_seconds(timeout_seconds))) {
    socket_.receive(&answer, 1, answer_deadline());
    SF_CHECK_AS(RuntimeError, answer == 0, "TCPStore: ", host_, ":", port_, " does not answer as a store does");
    return;
  }
  message = question(Query::CancelWait);
  socket_.send(message.data(), message.size(), answer_deadline());
  socket_.receive(&answer, 1, answer_deadline());
  if (answer == 0) {  // they came meanwhile
    socket_.receive(&answer, 1, answer_deadline());
    return;
  }
  fail<RuntimeError>("TCPStore.wait: ", listed(keys), " did not come within ", timeout_seconds, " s");
}

bool TCPStore::delete_key(const std::string& key) {
  check_key(key);
  return number<int64_t>(ask(question(Query::DeleteKey, {key}), 8)) == 1;
}

int64_t TCPStore::num_keys() { return number<int64_t>(ask(question(Query::NumKeys), 8)); }

}  // namespace sf::distributed
