// HTTP/1.1 over TCP, asynchronous: one thread of its own for all connections, some for handlers. Deadlines cover whole
// requests, sizes are bounded before memory is taken, and a client's leaving is noticed while its answer is made.
#pragma once
#include <chrono>
#include <optional>

#include "scaffolding/server/http/message.h"

namespace sf::server {

struct HttpLimits {
  size_t header_bytes = 16 << 10, body_bytes = 64 << 20;
  size_t bodies_bytes = 512 << 20;  // of all requests that are being read or answered
  size_t connections = 4096;
  size_t unsent_bytes = 4 << 20;  // of events that a client does not take
  std::chrono::seconds request{30}, idle{60}, response{120};
  int handler_threads = 2;
};

struct HttpCallbacks {
  // With the request's head, on the network's thread: a response to refuse it with before its body is read.
  std::function<std::optional<Response>(const Request& head)> refuse;
  // With the whole request, on a handlers' thread, or on the network's where it is one that is answered at once.
  std::function<void(std::shared_ptr<const Request> request, Answer answer)> handle;
  std::function<bool(const Request& request)> at_once;  // absent: none is
  // Of each answer, once its head is written.
  std::function<void(const Request& request, int status, double seconds)> answered;
  // The answer to what is no HTTP, or too large. What is too slow is closed.
  std::function<Response(int status, const std::string& message)> malformed;
};

class HttpServer {
 public:
  // Listens; port 0: one that is free. RuntimeError for an address that cannot be had.
  HttpServer(const std::string& address, uint16_t port, HttpLimits limits, HttpCallbacks callbacks);
  ~HttpServer();  // stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  void start();
  uint16_t port() const;
  size_t connections() const;
  size_t bodies_bytes() const;
  void stop_accepting();
  void stop();  // closes every connection and joins the threads

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace sf::server
