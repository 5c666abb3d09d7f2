// TCPStore: a store that one process serves and all reach by TCP, in the protocol of PyTorch's: the agent of torchrun
// may serve it, and PyTorch's clients may ask it.
//   TCPStore store({.host = "10.0.0.1", .port = 29500, .is_server = rank == 0});
#pragma once
#include <mutex>

#include "scaffolding/distributed/socket.h"
#include "scaffolding/distributed/store.h"

namespace sf::distributed {

struct TCPStoreOptions {
  std::string host = "127.0.0.1";  // where the server is; it listens on all addresses of its machine
  int port = 29500;                // 0: any free one, of a server
  bool is_server = false;
  int world_size = 0;  // how many clients the server's constructor waits for; 0: none
  double timeout_seconds = 300;
};

class StoreServer;

class TCPStore final : public Store {
 public:
  // RuntimeError when the port is in use, nobody answers, what answers is no store, or not all come in time.
  explicit TCPStore(const TCPStoreOptions& options);
  ~TCPStore() override;
  const std::string& host() const { return host_; }
  int port() const { return port_; }

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
  std::string ask(const std::string& message, size_t answer_bytes);
  std::string text_answer();
  void wait_locked(const std::vector<std::string>& keys, double timeout_seconds);
  Deadline answer_deadline() const;

  std::string host_;
  int port_;
  std::mutex mutex_;  // a question and its answer belong together
  std::unique_ptr<StoreServer> server_;
  Socket socket_;
};

}  // namespace sf::distributed
