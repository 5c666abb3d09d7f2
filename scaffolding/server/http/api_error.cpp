#include "scaffolding/server/http/api_error.h"

#include "scaffolding/core/error.h"
#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/io/json.h"
#include "scaffolding/server/unavailable.h"

namespace sf::server {

const char* reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 411: return "Length Required";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    case 507: return "Insufficient Storage";
    default: return "Status";
  }
}

namespace {

const char* openai_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

const char* webui_type(const std::string& kind) {
  if (kind == "missing") return "value_error.missing";
  return kind == "type" ? "type_error" : "value_error";
}

// A name may have a zero, at which what() ends.
std::string sentence(const FieldError& e) { return (e.name.empty() ? "body" : printable(e.name)) + ": " + e.reason; }

}  // namespace

Response json_response(const json& body, int status, Headers headers) {
  return {.status = status, .body = io::tolerant_json_text(body), .headers = std::move(headers)};
}

Response error_response(ErrorShape shape, const ApiError& e) {
  const std::string message = printable(e.what());
  const json field = e.field.empty() ? json() : json(e.field), code = e.code.empty() ? json() : json(e.code);
  switch (shape) {
    case ErrorShape::OpenAI:
      return json_response(
          {{"error", {{"message", message}, {"type", openai_type(e.status)}, {"param", field}, {"code", code}}}},
          e.status, e.headers);
    case ErrorShape::WebUi:
      return json_response({{"error", e.code.empty() ? reason_of(e.status) : e.code},
                            {"detail", message},
                            {"body", ""},
                            {"errors", message}},
                           e.status, e.headers);
    case ErrorShape::Own: break;
  }
  return json_response({{"error", {{"message", message}, {"code", code}, {"field", field}}}}, e.status, e.headers);
}

Response error_response(ErrorShape shape, const std::vector<FieldError>& errors) {
  const FieldError& first = errors.front();
  if (shape == ErrorShape::OpenAI)
    return error_response(
        shape, ApiError(400, sentence(first), first.kind == "unknown" ? "unknown_parameter" : "", first.name));
  json details = json::array();
  for (auto& e : errors) {
    if (shape == ErrorShape::WebUi)
      details.push_back({{"loc", {"body", e.name}}, {"msg", printable(sentence(e))}, {"type", webui_type(e.kind)}});
    else details.push_back({{"field", e.name}, {"message", printable(e.reason)}, {"code", e.kind}});
  }
  if (shape == ErrorShape::WebUi) return json_response({{"detail", details}}, 422);
  return json_response(
      {{"error",
        {{"message", printable(sentence(first))}, {"code", first.kind}, {"field", first.name}, {"details", details}}}},
      422);
}

Response error_response(ErrorShape shape, const std::exception& e) {
  if (auto* known = dynamic_cast<const ApiError*>(&e)) return error_response(shape, *known);
  const int unfit = shape == ErrorShape::OpenAI ? 400 : 422;
  if (dynamic_cast<const OutOfMemory*>(&e)) return error_response(shape, ApiError(507, e.what(), "out_of_memory"));
  if (dynamic_cast<const StorageFull*>(&e))
    return error_response(shape, ApiError(507, e.what(), "disk_full", "", {{"Retry-After", "30"}}));
  if (dynamic_cast<const Unavailable*>(&e))
    return error_response(shape, ApiError(503, "the server's database does not answer; ask again", "database", "",
                                          {{"Retry-After", "5"}}));
  if (dynamic_cast<const ValueError*>(&e) || dynamic_cast<const TypeError*>(&e) ||
      dynamic_cast<const NotSupported*>(&e))
    return error_response(shape, ApiError(unfit, e.what(), "invalid"));
  return error_response(shape, ApiError(500, "the server could not do this; its log says why", "internal"));
}

}  // namespace sf::server
