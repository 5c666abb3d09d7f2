// What the network and the rest of the server tell each other: requests, responses, and the exchange of one for the
// other. Plain structs; an Exchange may be used by any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sf::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  // "GET"
  std::string target;  // as it came
  std::string path;    // percent signs decoded
  std::map<std::string, std::string> query;
  Headers headers;  // names in small letters
  std::string body;
  std::string peer;        // the client's address
  bool websocket = false;  // it asks for one: begin_events() begins it, and each text that is sent is a message

  std::string_view header(std::string_view name) const {  // "" where it is absent
    for (auto& [key, value] : headers)
      if (key == name) return value;
    return {};
  }
};

struct Response {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  Headers headers = {};
};

// One request's answer: respond() once, or begin_events(), send() and end(). Later calls do nothing, as do all where
// the client has left. Where the last owner lets go of it unanswered, the client gets a 500.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void respond(Response response) = 0;
  virtual void begin_events(Headers headers = {}) = 0;  // text/event-stream, or the WebSocket that was asked for
  virtual void send(std::string text) = 0;              // a client that does not take them for too long is let go
  virtual void end() = 0;
  // Called once, on the network's thread, when the client goes before the answer is complete; at once where it has.
  virtual void on_leave(std::function<void()> left) = 0;
  virtual bool has_left() const = 0;
};

using Answer = std::shared_ptr<Exchange>;

const char* reason_of(int status);  // "Not Found"

}  // namespace sf::server
