#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/server/http/fields.h"

// A body against a declaration with a field of each kind: what passes has nothing but values of those kinds, and passes
// again.
SF_FUZZ_TARGET(fields) {
  using sf::server::field;
  using K = sf::server::FieldKind;
  static const sf::server::Fields fields{
      {field("prompt", K::Text).need().at_most(1000), field("steps", K::Whole).range(1, 1000),
       field("scale", K::Number).range(0, 100), field("stream", K::Flag), field("images", K::Texts).at_most(4),
       field("options", K::Object), field("size", K::Text).one_of({"small", "large"}), field("anything", K::Any)}};
  sf::server::json body = sf::server::parse_body({reinterpret_cast<const char*>(data), size});
  sf::server::check_fields(body, fields);
  const auto errors = sf::server::check_fields(body, fields);
  for (auto& e : errors)
    if (e.reason.size() > 2000) __builtin_trap();
  if (!errors.empty()) return;
  if (!body.at("prompt").is_string() || body["prompt"].get_ref<const std::string&>().size() > 1000) __builtin_trap();
  for (auto& [name, value] : body.items()) {
    const auto* f = fields.find(name);
    if (!f || value.is_null()) __builtin_trap();
    if (f->kind == K::Whole && !value.is_number_integer()) __builtin_trap();
    if (f->kind == K::Number && !(value.get<double>() >= 0 && value.get<double>() <= 100)) __builtin_trap();
  }
  body.dump(-1, ' ', false, sf::server::json::error_handler_t::replace);
}
