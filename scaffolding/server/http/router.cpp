#include "scaffolding/server/http/router.h"

#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/core/utf8.h"

namespace sf::server {

namespace {

std::vector<std::string_view> parts_of(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  std::vector<std::string_view> out;
  while (!path.empty()) {
    path.remove_prefix(1);  // the '/'
    const size_t end = std::min(path.find('/'), path.size());
    out.push_back(path.substr(0, end));
    path.remove_prefix(end);
  }
  return out;
}

bool is_name(std::string_view part) { return part.starts_with('{') && part.ends_with('}'); }

bool matches(const std::vector<std::string_view>& pattern, const std::vector<std::string_view>& path,
             std::map<std::string, std::string>& named) {
  if (pattern.size() != path.size()) return false;
  named.clear();
  for (size_t i = 0; i < path.size(); ++i) {
    if (is_name(pattern[i]) && !path[i].empty()) named.emplace(pattern[i].substr(1, pattern[i].size() - 2), path[i]);
    else if (pattern[i] != path[i]) return false;
  }
  return true;
}

ErrorShape shape_of(std::string_view path) {
  if (path.starts_with("/v1/") || path == "/v1") return ErrorShape::OpenAI;
  return path.starts_with("/sdapi/") ? ErrorShape::WebUi : ErrorShape::Own;
}

void read_form(const Route& route, Call& call) {
  std::map<std::string, std::string> texts;
  for (auto& part : parse_form(call.request.body, form_boundary(call.request.header("content-type")))) {
    std::string name = part.name;
    if (name.ends_with("[]")) name.resize(name.size() - 2);
    if (std::find(route.file_fields.begin(), route.file_fields.end(), name) != route.file_fields.end()) {
      part.name = name;
      call.files.push_back(std::move(part));
    } else {
      SF_CHECK(is_utf8(name) && is_utf8(part.value), "body: the form's field '", printable(name.substr(0, 60)),
               "' must be text in UTF-8");
      texts[name] = std::string(part.value);
    }
  }
  call.body = typed(texts, route.body);
}

void read_body(const Route& route, Call& call) {
  std::string_view type = call.request.header("content-type");
  if (route.body_kind == BodyKind::Form && type.starts_with("multipart/")) return read_form(route, call);
  // Clients of AUTOMATIC1111's API send JSON under any name, or nothing where they have nothing to say. The other names
  // of a form's body are refused, since a page of another origin may send those without asking.
  if (type.starts_with("multipart/") || type.starts_with("application/x-www-form-urlencoded") ||
      type.starts_with("text/plain"))
    throw ApiError(415, "the body must be application/json, got " + std::string(type.substr(0, 60)), "content_type");
  if (call.request.body.empty()) return;
  call.body = parse_body(call.request.body);
}

}  // namespace

Route& Router::add(std::string method, std::string path, std::string summary, Handler handle) {
  routes_.push_back({.method = std::move(method),
                     .path = std::move(path),
                     .summary = std::move(summary),
                     .handle = std::move(handle)});
  routes_.back().shape = shape_of(routes_.back().path);
  return routes_.back();
}

Router::Found Router::find(std::string_view method, std::string_view path) const {
  Found out;
  out.shape = shape_of(path);
  const auto asked = parts_of(path);
  if (method == "HEAD") method = "GET";
  std::map<std::string, std::string> named;
  for (auto& route : routes_) {
    if (!matches(parts_of(route.path), asked, named)) continue;
    out.allowed.push_back(route.method);
    if (route.method != method || out.route) continue;
    out.route = &route, out.path = named, out.shape = route.shape;
  }
  return out;
}

void Router::dispatch(const Found& found, const Request& request, Caller caller, const Answer& answer) const {
  try {
    if (!found.route) {
      if (found.allowed.empty()) throw ApiError(404, "there is nothing at " + request.path.substr(0, 200), "not_found");
      std::string allowed;
      for (auto& m : found.allowed) allowed += (allowed.empty() ? "" : ", ") + m;
      throw ApiError(405, "this path takes " + allowed + ", got " + request.method.substr(0, 20), "method", "",
                     {{"Allow", allowed}});
    }
    const Route& route = *found.route;
    Call call{.request = request, .caller = std::move(caller), .path = found.path, .files = {}};
    if (route.body_kind != BodyKind::None) {
      try {
        read_body(route, call);
      } catch (const ValueError& e) {
        return answer->respond(error_response(route.shape, ApiError(400, e.what(), "body")));
      }
      if (auto wrong = check_fields(call.body, route.body); !wrong.empty())
        return answer->respond(error_response(route.shape, wrong));
    }
    call.query = typed(request.query, route.query);
    if (auto wrong = check_fields(call.query, route.query); !wrong.empty())
      return answer->respond(error_response(route.shape, wrong));
    route.handle(call, answer);
  } catch (const std::exception& e) {
    Response response = error_response(found.shape, e);
    if (response.status == 500 && failed) failed(request, e);
    answer->respond(std::move(response));
  }
}

json openapi(const Router& router, const std::string& version) {
  json paths = json::object();
  for (auto& route : router.routes()) {
    std::string method = route.method;
    for (char& c : method) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
    json parameters = json::array();
    for (auto part : parts_of(route.path))
      if (is_name(part))
        parameters.push_back({{"name", part.substr(1, part.size() - 2)},
                              {"in", "path"},
                              {"required", true},
                              {"schema", {{"type", "string"}}}});
    for (auto& f : route.query.all)
      parameters.push_back({{"name", f.name}, {"in", "query"}, {"required", f.required}, {"schema", schema_of(f)}});
    json operation{{"summary", route.summary},
                   {"parameters", parameters},
                   {"responses",
                    {{"200", {{"description", "done"}}},
                     {"4XX", {{"description", "refused; the body says why"}}},
                     {"5XX", {{"description", "the server cannot do it now; the body says why"}}}}}};
    if (route.creates && route.shape == ErrorShape::Own) operation["responses"]["202"] = {{"description", "accepted"}};
    if (route.access == Access::Open) operation["security"] = json::array();
    if (route.body_kind != BodyKind::None) {
      json schema = schema_of(route.body), content;
      if (!route.file_fields.empty()) {
        json form = schema;
        for (auto& name : route.file_fields) form["properties"][name] = {{"type", "string"}, {"format", "binary"}};
        content["multipart/form-data"] = {{"schema", form}};
      }
      content["application/json"] = {{"schema", schema}};
      operation["requestBody"] = {{"content", content}};
    }
    paths[route.path][method] = operation;
  }
  return {
      {"openapi", "3.1.0"},
      {"info", {{"title", "Scaffolding"}, {"version", version}}},
      {"paths", paths},
      {"components",
       {{"securitySchemes",
         {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}}, {"basic", {{"type", "http"}, {"scheme", "basic"}}}}}}},
      {"security", {{{"bearer", json::array()}}, {{"basic", json::array()}}}}};
}

}  // namespace sf::server
