#include "scaffolding/distributed/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>

#include "scaffolding/core/error.h"

namespace sf::distributed {

namespace {

[[noreturn]] void fail_errno(const std::string& who, const char* what) {
  fail<RuntimeError>("distributed: ", who, ": ", what, ": ", std::strerror(errno));
}

int milliseconds_to(Deadline deadline) {
  auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return int(std::clamp<int64_t>(left, 0, 1 << 30));
}

// Waits for any of the events; false at the deadline.
bool wait_for(pollfd* fds, nfds_t count, Deadline deadline) {
  for (;;) {
    int n = poll(fds, count, milliseconds_to(deadline));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("poll", "cannot wait");
    return n > 0;
  }
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
Addresses resolved(const std::string& address, int port, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  int error = getaddrinfo(address.empty() ? nullptr : address.c_str(), std::to_string(port).c_str(), &hints, &found);
  SF_CHECK_AS(RuntimeError, error == 0, "distributed: '", address, "' is no address: ", gai_strerror(error));
  return {found, &freeaddrinfo};
}

std::string text_of(const sockaddr_storage& a, socklen_t size) {
  char host[NI_MAXHOST];
  return getnameinfo(reinterpret_cast<const sockaddr*>(&a), size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0
             ? host
             : "";
}

void prepare(int fd) {  // small messages go at once, and no call waits inside the kernel
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace

Socket& Socket::operator=(Socket&& o) noexcept {
  std::swap(fd_, o.fd_);
  std::swap(peer_, o.peer_);
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Socket Socket::connect(const std::string& address, int port, Deadline deadline) {
  std::string peer = address + ":" + std::to_string(port);
  for (;;) {
    Addresses all = resolved(address, port, 0);
    for (addrinfo* a = all.get(); a; a = a->ai_next) {
      Socket s(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol), peer);
      if (s.fd_ < 0) continue;
      prepare(s.fd_);
      if (::connect(s.fd_, a->ai_addr, a->ai_addrlen) == 0) return s;
      if (errno != EINPROGRESS) continue;
      pollfd p{s.fd_, POLLOUT, 0};
      int error = 0;
      socklen_t size = sizeof error;
      if (wait_for(&p, 1, deadline) && getsockopt(s.fd_, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0)
        return s;
    }
    SF_CHECK_AS(RuntimeError, std::chrono::steady_clock::now() < deadline, "distributed: ", peer,
                ": nobody answers; is rank 0 running there?");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void Socket::exchange(Socket& to, const void* out, size_t out_bytes, Socket& from, void* in, size_t in_bytes,
                      Deadline deadline) {
  auto* send_at = static_cast<const char*>(out);
  auto* receive_at = static_cast<char*>(in);
  while (out_bytes > 0 || in_bytes > 0) {
    if (out_bytes > 0) {
      ssize_t n = ::send(to.fd_, send_at, out_bytes, MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) fail_errno(to.peer_, "cannot send");
      if (n > 0) send_at += n, out_bytes -= size_t(n);
    }
    bool waits = true;
    if (in_bytes > 0) {
      ssize_t n = ::recv(from.fd_, receive_at, in_bytes, 0);
      if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) fail_errno(from.peer_, "cannot receive");
      SF_CHECK_AS(RuntimeError, n != 0, "distributed: ", from.peer_,
                  ": has closed the connection; that process has ended");
      if (n > 0) receive_at += n, in_bytes -= size_t(n), waits = false;
    }
    if (!waits || (out_bytes == 0 && in_bytes == 0)) continue;
    pollfd p[2];
    nfds_t count = 0;
    if (out_bytes > 0) p[count++] = {to.fd_, POLLOUT, 0};
    if (in_bytes > 0) p[count++] = {from.fd_, POLLIN, 0};
    SF_CHECK_AS(RuntimeError, wait_for(p, count, deadline), "distributed: ", in_bytes > 0 ? from.peer_ : to.peer_,
                ": nothing came before the timeout; does every process make the same calls?");
  }
}

std::string Socket::local_address() const {
  sockaddr_storage a{};
  socklen_t size = sizeof a;
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&a), &size) != 0) fail_errno(peer_, "has no address");
  return text_of(a, size);
}

std::string Socket::remote_address() const {
  sockaddr_storage a{};
  socklen_t size = sizeof a;
  if (getpeername(fd_, reinterpret_cast<sockaddr*>(&a), &size) != 0) fail_errno(peer_, "has no address");
  return text_of(a, size);
}

Listener::Listener(const std::string& address, int port) {
  std::string where = address + ":" + std::to_string(port);
  for (const std::string& from : {address, std::string()}) {
    Addresses all = resolved(from, port, AI_PASSIVE);
    for (addrinfo* a = all.get(); a && fd_ < 0; a = a->ai_next) {
      int fd = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol), on = 1;
      if (fd < 0) continue;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0) fd_ = fd;
      else {
        int error = errno;
        close(fd);
        errno = error;
      }
    }
    if (fd_ >= 0 || errno != EADDRNOTAVAIL) break;
  }
  if (fd_ < 0) fail_errno(where, "cannot listen");
  prepare(fd_);
  sockaddr_storage a{};
  socklen_t size = sizeof a;
  getsockname(fd_, reinterpret_cast<sockaddr*>(&a), &size);
  port_ = ntohs(a.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(a).sin6_port
                                        : reinterpret_cast<sockaddr_in&>(a).sin_port);
}

Listener::~Listener() {
  if (fd_ >= 0) close(fd_);
}

Socket Listener::accept(Deadline deadline) {
  for (;;) {
    int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) {
      prepare(fd);
      Socket s(fd, "");
      s.set_peer(s.remote_address());
      return s;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED)
      fail_errno("port " + std::to_string(port_), "cannot accept");
    pollfd p{fd_, POLLIN, 0};
    SF_CHECK_AS(RuntimeError, wait_for(&p, 1, deadline), "distributed: port ", port_,
                ": not every process has come before the timeout");
  }
}

}  // namespace sf::distributed
