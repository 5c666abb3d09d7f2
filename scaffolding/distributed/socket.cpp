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
#include <chrono>
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

void Socket::send(const void* data, size_t bytes, Deadline deadline) {
  for (auto* at = static_cast<const char*>(data); bytes > 0;) {
    int64_t n = send_some(at, bytes);
    SF_CHECK_AS(RuntimeError, n != 0, "distributed: ", peer_, ": has closed the connection; that process has ended");
    if (n > 0) at += n, bytes -= size_t(n);
    pollfd p{fd_, POLLOUT, 0};
    SF_CHECK_AS(RuntimeError, bytes == 0 || wait_for(&p, 1, deadline), "distributed: ", peer_,
                ": took nothing before the timeout; that process hangs");
  }
}

void Socket::receive(void* data, size_t bytes, Deadline deadline) {
  for (auto* at = static_cast<char*>(data); bytes > 0;) {
    int64_t n = receive_some(at, bytes);
    SF_CHECK_AS(RuntimeError, n != 0, "distributed: ", peer_, ": has closed the connection; that process has ended");
    if (n > 0) at += n, bytes -= size_t(n);
    SF_CHECK_AS(RuntimeError, bytes == 0 || n > 0 || readable(deadline), "distributed: ", peer_,
                ": nothing came before the timeout; that process hangs");
  }
}

bool Socket::readable(Deadline deadline) const {
  pollfd p{fd_, POLLIN, 0};
  return wait_for(&p, 1, deadline);
}

int64_t Socket::send_some(const char* data, size_t bytes) {
  ssize_t n = ::send(fd_, data, bytes, MSG_NOSIGNAL);
  if (n >= 0) return n;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? -1 : 0;
}

int64_t Socket::receive_some(char* data, size_t bytes) {
  ssize_t n = ::recv(fd_, data, bytes, 0);
  if (n >= 0) return n;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? -1 : 0;
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

Listener::Listener(int port) {
  Addresses all = resolved("", port, AI_PASSIVE);
  for (int family : {AF_INET6, AF_INET})  // the former takes connections of both
    for (addrinfo* a = all.get(); a && fd_ < 0; a = a->ai_next) {
      if (a->ai_family != family) continue;
      int fd = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol), on = 1, off = 0;
      if (fd < 0) continue;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0) fd_ = fd;
      else {
        int error = errno;
        close(fd);
        errno = error;
      }
    }
  if (fd_ < 0) fail_errno("port " + std::to_string(port), "cannot listen; does another process use it?");
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

Socket Listener::try_accept() {
  int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return {};
  prepare(fd);
  return Socket(fd, "a client");
}

}  // namespace sf::distributed
