#include "scaffolding/distributed/store_server.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "scaffolding/core/error.h"

namespace sf::distributed {

StoreServer::StoreServer(int port) : listener_(port) {
  SF_CHECK_AS(RuntimeError, pipe(stop_) == 0, "TCPStore: no pipe: ", std::strerror(errno));
  thread_ = std::thread([this] { serve(); });
}

StoreServer::~StoreServer() {
  char byte = 0;
  while (write(stop_[1], &byte, 1) < 0 && errno == EINTR) {}
  thread_.join();
  close(stop_[0]);
  close(stop_[1]);
}

void StoreServer::drop(int fd) {
  protocol_.disconnect(fd);
  clients_.erase(fd);
}

void StoreServer::accept_all() {
  for (;;) {
    Socket s = listener_.try_accept();
    if (s.fd() < 0) return;
    int fd = s.fd();
    protocol_.connect(fd);
    clients_.insert_or_assign(fd, std::move(s));
  }
}

void StoreServer::serve() {
  std::vector<char> buffer(1 << 16);
  for (;;) {
    std::vector<pollfd> fds{{stop_[0], POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
    for (auto& [fd, s] : clients_)
      fds.push_back({fd, short(POLLIN | (protocol_.answers(fd).empty() ? 0 : POLLOUT)), 0});
    if (poll(fds.data(), fds.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (fds[0].revents) return;
    if (fds[1].revents) accept_all();
    for (size_t i = 2; i < fds.size(); ++i) {
      if (!(fds[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
      auto n = clients_[fds[i].fd].receive_some(buffer.data(), buffer.size());
      if (n < 0) continue;
      if (n == 0 || !protocol_.receive(fds[i].fd, buffer.data(), size_t(n))) drop(fds[i].fd);
    }
    for (int fd : protocol_.answered()) {  // one client's message may answer others that wait
      std::string& out = protocol_.answers(fd);
      auto n = clients_[fd].send_some(out.data(), out.size());
      if (n == 0) drop(fd);
      else if (n > 0) out.erase(0, size_t(n));
    }
  }
}

}  // namespace sf::distributed
