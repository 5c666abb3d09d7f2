// The server: models, queue, history and the APIs around them, listening. What `scaffolding serve` is.
//   Server server(settings, samplers);     // ready when it returns
//   server.port();
//   server.stop(30);                       // what runs may go on for so long
// The constructor's thread owns it.
#pragma once
#include "scaffolding/server/apis/context.h"
#include "scaffolding/server/http/http_server.h"

namespace sf::server {

struct ServerSettings {
  std::string host = "127.0.0.1";
  uint16_t port = 7860;  // 0: one that is free
  std::string data;      // the history's folder
  std::string database;  // postgresql://..., of a history that several servers have; "": in the folder
  double lease = 15;     // seconds after which the jobs of a server that is not heard of are others'
  ShelfSettings shelf;
  GuardSettings guard;  // loopback is settled here
  HttpLimits http;
  RequestLimits requests;
  JobSettings jobs;
  std::string public_url;
  std::vector<std::string> runs;  // folders of training runs, or with some in them
  bool log_requests = false;
};

class Server {
 public:
  // ValueError for an address beyond the loopback without tokens.
  Server(ServerSettings settings, Samplers samplers, std::FILE* log = stderr);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  uint16_t port() const;
  void stop(double drain_seconds);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

bool is_loopback(const std::string& host);

}  // namespace sf::server
