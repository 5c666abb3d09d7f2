// What a request is refused with: an exception of handlers, and the body that each API's clients read. Functions and
// plain structs.
#pragma once
#include <stdexcept>

#include "scaffolding/server/http/fields.h"
#include "scaffolding/server/http/message.h"

namespace sf::server {

enum class ErrorShape : uint8_t {
  Own,     // {"error": {"message", "code", "field", "details": [...]}}
  OpenAI,  // {"error": {"message", "type", "param", "code"}}
  WebUi,   // {"error", "detail", "body", "errors"}; of fields {"detail": [{"loc", "msg", "type"}]}
};

struct ApiError : std::runtime_error {
  ApiError(int status, const std::string& message, std::string code = "", std::string field = "", Headers headers = {})
      : std::runtime_error(message),
        status(status),
        code(std::move(code)),
        field(std::move(field)),
        headers(std::move(headers)) {}
  int status;
  std::string code, field;
  Headers headers;
};

Response error_response(ErrorShape shape, const ApiError& error);
Response error_response(ErrorShape shape, const std::vector<FieldError>& errors);
// Of whatever a handler threw: ApiError as it says, ValueError and NotSupported 422 (OpenAI's 400), OutOfMemory and
// StorageFull 507, Unavailable 503, everything else 500 without its words, which may name files.
Response error_response(ErrorShape shape, const std::exception& error);

Response json_response(const json& body, int status = 200, Headers headers = {});

}  // namespace sf::server
