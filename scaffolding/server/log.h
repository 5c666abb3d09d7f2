// The server's log: a line of JSON for each thing that happened, without prompts, tokens or pictures. Locked: any
// thread may write.
#pragma once
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

namespace sf::server {

class Log {
 public:
  explicit Log(std::FILE* to = stderr, bool requests = false) : requests(requests), to_(to) {}
  // {"time": "2026-01-31T12:00:00.000Z", "event": event, ...}
  void write(const char* event, nlohmann::ordered_json details = nlohmann::ordered_json::object());
  const bool requests;  // each answered request is told too

 private:
  std::mutex mutex_;
  std::FILE* to_;
};

}  // namespace sf::server
