// Socket: a TCP connection, and Listener, what accepts them. Used by process_group.cpp.
// Each owns its descriptor; one thread at a time. Errors, the end of the connection and the deadline are RuntimeError
// naming the other side.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace sf::distributed {

using Deadline = std::chrono::steady_clock::time_point;

class Socket {
 public:
  Socket() = default;
  Socket(int fd, std::string peer) : fd_(fd), peer_(std::move(peer)) {}
  Socket(Socket&& o) noexcept : fd_(std::exchange(o.fd_, -1)), peer_(std::move(o.peer_)) {}
  Socket& operator=(Socket&& o) noexcept;
  ~Socket();

  // Tries again until the deadline: the other process may not listen yet.
  static Socket connect(const std::string& address, int port, Deadline deadline);

  void send(const void* data, size_t bytes, Deadline deadline) {
    exchange(*this, data, bytes, *this, nullptr, 0, deadline);
  }
  void receive(void* data, size_t bytes, Deadline deadline) {
    exchange(*this, nullptr, 0, *this, data, bytes, deadline);
  }
  // Sends to one and receives from another at the same time: neighbours in a ring that all sent first would wait for
  // each other.
  static void exchange(Socket& to, const void* out, size_t out_bytes, Socket& from, void* in, size_t in_bytes,
                       Deadline deadline);

  std::string local_address() const;   // by which this machine reaches the peer
  std::string remote_address() const;  // without the port
  const std::string& peer() const { return peer_; }
  void set_peer(std::string name) { peer_ = std::move(name); }

 private:
  int fd_ = -1;
  std::string peer_;
};

class Listener {
 public:
  // port 0: any free one; an address that is none of this machine's: all of its addresses
  Listener(const std::string& address, int port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int port() const { return port_; }
  Socket accept(Deadline deadline);

 private:
  int fd_ = -1, port_ = 0;
};

}  // namespace sf::distributed
