// Socket: a TCP connection, and Listener, what accepts them. Used by the store (tcp_store.cpp,
// store_server.cpp): it carries addresses and ids, no tensors.
// Each owns its descriptor; one thread at a time. Errors, the end of the connection and the deadline are RuntimeError
// naming the other side.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "scaffolding/distributed/deadline.h"

namespace sf::distributed {

class Socket {
 public:
  Socket() = default;
  Socket(int fd, std::string peer) : fd_(fd), peer_(std::move(peer)) {}
  Socket(Socket&& o) noexcept : fd_(std::exchange(o.fd_, -1)), peer_(std::move(o.peer_)) {}
  Socket& operator=(Socket&& o) noexcept;
  ~Socket();

  // Tries again until the deadline: the other process may not listen yet.
  static Socket connect(const std::string& address, int port, Deadline deadline);

  void send(const void* data, size_t bytes, Deadline deadline);
  void receive(void* data, size_t bytes, Deadline deadline);
  bool readable(Deadline deadline) const;  // false where nothing came until then

  // What goes without waiting: how many bytes; -1 where none would at the moment, 0 where the connection has ended.
  int64_t send_some(const char* data, size_t bytes);
  int64_t receive_some(char* data, size_t bytes);

  int fd() const { return fd_; }      // -1 of a Socket that was default-made
  std::string local_address() const;  // by which this machine reaches the peer, without the port
  std::string remote_address() const;
  const std::string& peer() const { return peer_; }

 private:
  int fd_ = -1;
  std::string peer_;
};

class Listener {
 public:
  // On all addresses of this machine; port 0: any free one.
  explicit Listener(int port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int port() const { return port_; }
  int fd() const { return fd_; }
  Socket try_accept();  // one whose fd is -1 where nobody waits

 private:
  int fd_ = -1, port_ = 0;
};

}  // namespace sf::distributed
