// StoreServer: a thread that serves a store's table by TCP until it is destroyed. Used by TCPStore.
#pragma once
#include <map>
#include <thread>

#include "scaffolding/distributed/socket.h"
#include "scaffolding/distributed/store_protocol.h"

namespace sf::distributed {

class StoreServer {
 public:
  explicit StoreServer(int port);  // RuntimeError naming the port when it is in use
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  int port() const { return listener_.port(); }

 private:
  void serve();
  void accept_all();
  void drop(int fd);

  Listener listener_;
  int stop_[2];  // a pipe: a byte in it ends the thread
  StoreProtocol protocol_;
  std::map<int, Socket> clients_;  // by descriptor
  std::thread thread_;
};

}  // namespace sf::distributed
