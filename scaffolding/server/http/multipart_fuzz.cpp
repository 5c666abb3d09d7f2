#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/server/http/multipart.h"

// A Content-Type in the first line, the body behind it.
SF_FUZZ_TARGET(multipart) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(text.find('\n'), text.size());
  const std::string_view body = text.substr(std::min(line + 1, text.size()));
  size_t bytes = 0;
  const auto parts = sf::server::parse_form(body, sf::server::form_boundary(text.substr(0, line)));
  for (auto& part : parts) {
    bytes += part.value.size();
    SF_CHECK_AS(RuntimeError,
                part.value.empty() || (part.value.data() >= body.data() &&
                                       part.value.data() + part.value.size() <= body.data() + body.size()),
                "internal: a part lies outside of the body");
  }
  if (bytes > body.size()) __builtin_trap();
}
