#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/server/http/url.h"

SF_FUZZ_TARGET(request_target) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto target = sf::server::parse_target(text);
  if (target.path.find('\0') != target.path.npos) __builtin_trap();
  if (sf::server::decode_percent(sf::server::encode_percent(target.path)) != target.path) __builtin_trap();
  sf::server::host_of(text);
}
