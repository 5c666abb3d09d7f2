// Routes, declared once with their fields: what comes is checked by them before a handler sees it, and /openapi.json is
// written from them. Filled before the server starts; afterwards any thread may dispatch.
#pragma once
#include <functional>

#include "scaffolding/server/http/api_error.h"
#include "scaffolding/server/http/multipart.h"

namespace sf::server {

enum class Access : uint8_t { Open, User, Admin };   // Open: without a token, where tokens are set
enum class BodyKind : uint8_t { None, Json, Form };  // Form: multipart/form-data, or JSON

// Who calls: with tokens the one of that name, without them everybody is one.
struct Caller {
  std::string name;
  bool admin = false;
};

struct Call {
  const Request& request;
  Caller caller;
  std::map<std::string, std::string> path;  // what stands for {names}
  json query = json::object(), body = json::object();
  std::vector<FormPart> files;  // of a form; into the request's body
};
using Handler = std::function<void(Call& call, const Answer& answer)>;

struct Route {
  std::string method, path;  // "/api/v1/jobs/{id}"
  std::string summary;
  Handler handle;
  Access access = Access::User;
  ErrorShape shape = ErrorShape::Own;
  BodyKind body_kind = BodyKind::None;
  Fields body = {}, query = {.all = {}, .others = true};
  std::vector<std::string> file_fields = {};  // of a form: parts that are files, with "[]" behind the name or not
  bool creates = false;                       // jobs: rates are limited, and a server that stops refuses it
  bool waits = true;                          // for locks, disks, a database: not on the network's thread

  Route& takes(Fields fields, BodyKind kind = BodyKind::Json) {
    return body = std::move(fields), body_kind = kind, *this;
  }
  Route& asks(std::vector<FieldSpec> fields) { return query.all = std::move(fields), *this; }
  Route& files(std::vector<std::string> names) { return file_fields = std::move(names), *this; }
  Route& open() { return access = Access::Open, *this; }
  Route& admin() { return access = Access::Admin, *this; }
  Route& errors(ErrorShape s) { return shape = s, *this; }
  Route& makes_jobs() { return creates = true, *this; }
  Route& at_once() { return waits = false, *this; }
};

class Router {
 public:
  Route& add(std::string method, std::string path, std::string summary, Handler handle);
  const std::vector<Route>& routes() const { return routes_; }

  struct Found {
    const Route* route = nullptr;  // null: no route has this path, or none with this method
    std::map<std::string, std::string> path;
    std::vector<std::string> allowed;    // methods of the path
    ErrorShape shape = ErrorShape::Own;  // by the path, where there is no route
  };
  // A slash at the end does not matter. HEAD finds GET's.
  Found find(std::string_view method, std::string_view path) const;

  // Checks body and query and calls the handler; whatever is wrong is answered in the route's shape.
  void dispatch(const Found& found, const Request& request, Caller caller, const Answer& answer) const;
  std::function<void(const Request& request, const std::exception& error)> failed;  // told of what becomes a 500

 private:
  std::vector<Route> routes_;
};

json openapi(const Router& router, const std::string& version);

}  // namespace sf::server
