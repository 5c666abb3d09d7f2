#include "scaffolding/distributed/store_protocol.h"

#include <cstring>

#include "scaffolding/core/error.h"

namespace sf::distributed {

// Takes the parts of one message from the bytes that have come; says whether they ended early or cannot be.
class StoreProtocol::Reader {
 public:
  Reader(const std::string& bytes, size_t at) : bytes_(bytes), at_(at) {}
  bool incomplete = false, bad = false;
  size_t at() const { return at_; }

  template <class T> T number() {
    T value{};
    if (stopped(sizeof value)) return value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text(uint64_t max) {
    auto size = number<uint64_t>();
    if (!incomplete && !bad && size > max) bad = true;
    if (stopped(size)) return {};
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  std::string key() { return text(kMaxKeyBytes); }
  std::string value() { return text(kMaxValueBytes); }
  uint64_t count() {
    auto n = number<uint64_t>();
    if (n > kMaxKeys) bad = true;
    return bad || incomplete ? 0 : n;
  }
  std::vector<std::string> keys() {
    std::vector<std::string> all;
    for (uint64_t n = count(); n > 0 && !incomplete && !bad; --n) all.push_back(key());
    return all;
  }

 private:
  bool stopped(uint64_t needed) {
    if (!bad && needed > bytes_.size() - at_) incomplete = true;
    return incomplete || bad;
  }
  const std::string& bytes_;
  size_t at_;
};

void StoreProtocol::disconnect(int client) {
  auto it = clients_.find(client);
  if (it == clients_.end()) return;
  for (auto& key : it->second.awaited) {
    auto waiters = waiting_.find(key);
    waiters->second.erase(client);
    if (waiters->second.empty()) waiting_.erase(waiters);
  }
  for (auto& [key, who] : barriers_) std::erase(who, client);
  clients_.erase(it);
}

std::vector<int> StoreProtocol::answered() const {
  std::vector<int> ids;
  for (auto& [id, client] : clients_)
    if (!client.out.empty()) ids.push_back(id);
  return ids;
}

bool StoreProtocol::receive(int id, const char* data, size_t bytes) {
  Client& client = clients_[id];
  client.in.append(data, bytes);
  size_t done = 0;
  while (done < client.in.size()) {
    Reader reader(client.in, done);
    Outcome outcome = message(id, client, reader);
    if (outcome == Outcome::Bad) return false;
    if (outcome == Outcome::Incomplete) break;
    done = reader.at();
  }
  client.in.erase(0, done);
  return client.in.size() <= kMaxMessageBytes && client.out.size() <= kMaxMessageBytes;
}

bool StoreProtocol::here(const std::string& key) const {
  auto queue = queues_.find(key);
  return table_.find(key) || (queue != queues_.end() && !queue->second.empty());
}

void StoreProtocol::wake(const std::string& key, bool one) {
  auto waiters = waiting_.find(key);
  while (waiters != waiting_.end() && !waiters->second.empty()) {
    Client& client = clients_[*waiters->second.begin()];
    waiters->second.erase(waiters->second.begin());
    client.awaited.erase(key);
    if (client.awaited.empty()) put<uint8_t>(client.out, 0);
    if (one) break;
  }
  if (waiters != waiting_.end() && waiters->second.empty()) waiting_.erase(waiters);
}

StoreProtocol::Outcome StoreProtocol::message(int id, Client& client, Reader& in) {
  auto query = in.number<uint8_t>();
  auto all_here = [&] {
    if (in.bad) return Outcome::Bad;
    return in.incomplete ? Outcome::Incomplete : Outcome::Done;
  };
  if (!client.validated) {
    if (Query(query) != Query::Validate) return Outcome::Bad;
    auto magic = in.number<uint32_t>();
    if (in.incomplete) return Outcome::Incomplete;
    client.validated = magic == kStoreMagic;
    return client.validated ? Outcome::Done : Outcome::Bad;
  }
  std::string& out = client.out;
  // Nothing is changed before the whole message is here.
  switch (Query(query)) {
    case Query::Set:
    case Query::Append:
    case Query::QueuePush: {
      std::string key = in.key(), value = in.value();
      if (all_here() != Outcome::Done) break;
      if (Query(query) == Query::Set) table_.set(key, std::move(value));
      else if (Query(query) == Query::Append) table_.append(key, value);
      else queues_[key].push_back(std::move(value));
      wake(key, Query(query) == Query::QueuePush);  // what is pushed is for one
      break;
    }
    case Query::CompareSet: {
      std::string key = in.key(), expected = in.value(), desired = in.value();
      if (all_here() != Outcome::Done) break;
      put_text(out, table_.compare_set(key, expected, desired));
      if (table_.find(key)) wake(key);
      break;
    }
    case Query::Get: {
      std::string key = in.key();
      if (all_here() != Outcome::Done) break;
      const std::string* held = table_.find(key);
      put_text(out, held ? *held : std::string());
      break;
    }
    case Query::Add: {
      std::string key = in.key();
      auto amount = in.number<int64_t>();
      if (all_here() != Outcome::Done) break;
      try {
        put<int64_t>(out, table_.add(key, amount));
      } catch (const Error&) {
        return Outcome::Bad;  // the protocol has no answer for it
      }
      wake(key);
      break;
    }
    case Query::Check: {
      auto keys = in.keys();
      if (all_here() != Outcome::Done) break;
      uint8_t missing = 0;
      for (auto& key : keys) missing |= uint8_t(!here(key));
      put<uint8_t>(out, missing);
      break;
    }
    case Query::Wait: {
      auto keys = in.keys();
      if (all_here() != Outcome::Done) break;
      if (!client.awaited.empty()) return Outcome::Bad;
      for (auto& key : keys)
        if (!here(key)) client.awaited.insert(key), waiting_[key].insert(id);
      if (client.awaited.empty()) put<uint8_t>(out, 0);
      break;
    }
    case Query::CancelWait:
      for (auto& key : client.awaited) {
        auto waiters = waiting_.find(key);
        waiters->second.erase(id);
        if (waiters->second.empty()) waiting_.erase(waiters);
      }
      client.awaited.clear();
      for (auto& [key, who] : barriers_) std::erase(who, id);
      put<uint8_t>(out, 1);
      break;
    case Query::NumKeys: put<int64_t>(out, int64_t(table_.values().size())); break;
    case Query::DeleteKey: {
      std::string key = in.key();
      if (all_here() == Outcome::Done) put<int64_t>(out, table_.erase(key));
      break;
    }
    case Query::MultiGet: {
      auto keys = in.keys();
      if (all_here() != Outcome::Done) break;
      for (auto& key : keys) {
        const std::string* held = table_.find(key);
        put_text(out, held ? *held : std::string());
        if (out.size() > kMaxMessageBytes) return Outcome::Bad;
      }
      break;
    }
    case Query::MultiSet: {
      std::vector<std::pair<std::string, std::string>> pairs;
      for (uint64_t n = in.count(); n > 0 && all_here() == Outcome::Done; --n) {
        std::string key = in.key();
        pairs.emplace_back(std::move(key), in.value());
      }
      if (all_here() != Outcome::Done) break;
      for (auto& [key, value] : pairs) table_.set(key, std::move(value)), wake(key);
      break;
    }
    case Query::Ping: {
      auto nonce = in.number<uint32_t>();
      if (all_here() == Outcome::Done) put<uint32_t>(out, nonce);
      break;
    }
    case Query::QueuePop: {
      std::string key = in.key();
      if (all_here() != Outcome::Done) break;
      auto queue = queues_.find(key);
      put<int64_t>(out, queue == queues_.end() ? 0 : int64_t(queue->second.size()));
      if (queue == queues_.end()) break;
      put_text(out, queue->second.front());
      queue->second.pop_front();
      if (queue->second.empty()) queues_.erase(queue);
      break;
    }
    case Query::QueueLen: {
      std::string key = in.key();
      if (all_here() != Outcome::Done) break;
      auto queue = queues_.find(key);
      put<int64_t>(out, queue == queues_.end() ? 0 : int64_t(queue->second.size()));
      break;
    }
    case Query::ListKeys:
      put<int64_t>(out, int64_t(table_.values().size()));
      for (auto& [key, value] : table_.values()) put_text(out, key);
      break;
    case Query::Barrier: {
      std::string key = in.key();
      auto size = in.number<int64_t>();
      if (all_here() != Outcome::Done) break;
      int64_t came = 0;
      try {
        came = table_.add(key, 1);
      } catch (const Error&) {
        return Outcome::Bad;
      }
      barriers_[key].push_back(id);
      if (came < size) break;
      for (int who : barriers_[key]) put<uint8_t>(clients_[who].out, 0);
      barriers_.erase(key);
      break;
    }
    default: return Outcome::Bad;
  }
  return all_here();
}

}  // namespace sf::distributed
