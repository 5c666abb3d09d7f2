// StoreProtocol: the server's side of the protocol of PyTorch's TCPStore, without sockets: bytes of clients in, answers
// out. Bytes may come from anyone: sizes are checked before anything is kept, and what is not the protocol ends the
// client. Used by StoreServer (tcp_store.cpp). One thread at a time.
//
// A message is a byte that says what is asked, then its arguments. Numbers are 64 bits, little-endian; a text is its
// size and its bytes; several texts are their count and each.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "scaffolding/distributed/store.h"

namespace sf::distributed {

enum class Query : uint8_t {
  Validate,    // a magic number of 32 bits; the first message of a client
  Set,         // key, value
  CompareSet,  // key, expected, desired: what the key holds then
  Get,         // key: its value
  Add,         // key, amount: the sum
  Check,       // keys: a byte, 0 where all are there
  Wait,        // keys: a byte 0 when all are there
  NumKeys,     // how many
  DeleteKey,   // key: 1 or 0, 64 bits
  Append,      // key, value
  MultiGet,    // keys: their values
  MultiSet,    // count, then key and value of each
  CancelWait,  // a byte 1
  Ping,        // a number of 32 bits: the same
  QueuePush,   // key, value
  QueuePop,    // key: how many there were, then the first where there is one
  QueueLen,    // key: how many
  ListKeys,    // count and each
  Barrier,     // key, how many take part: a byte 0 when so many have asked
};
inline constexpr uint32_t kStoreMagic = 0x3C85F7CE;

template <class T> void put(std::string& message, T value) {
  message.append(reinterpret_cast<const char*>(&value), sizeof value);
}
inline void put_text(std::string& message, const std::string& text) {
  put<uint64_t>(message, text.size());
  message += text;
}

class StoreProtocol {
 public:
  static constexpr uint64_t kMaxKeys = 128 * 1024, kMaxKeyBytes = 8 * 1024, kMaxValueBytes = 8 * 1024 * 1024,
                            kMaxMessageBytes = 64 * 1024 * 1024;

  void connect(int client) { clients_[client]; }
  void disconnect(int client);
  // What the client has sent. False when it does not speak the protocol: it should be disconnected.
  bool receive(int client, const char* data, size_t bytes);
  // What is to be sent to the client; the caller takes away what it has sent.
  std::string& answers(int client) { return clients_[client].out; }
  // Clients with answers, so that the caller need not look at all.
  std::vector<int> answered() const;

 private:
  struct Client {
    std::string in, out;
    bool validated = false;
    std::set<std::string> awaited;  // keys it waits for that are not there
  };
  class Reader;
  enum class Outcome { Done, Incomplete, Bad };
  Outcome message(int id, Client& client, Reader& reader);
  bool here(const std::string& key) const;
  void wake(const std::string& key, bool one = false);

  std::map<int, Client> clients_;
  std::map<std::string, std::set<int>> waiting_;  // who waits for a key
  StoreTable table_;
  std::map<std::string, std::deque<std::string>> queues_;
  std::map<std::string, std::vector<int>> barriers_;  // who stands at one
};

}  // namespace sf::distributed
