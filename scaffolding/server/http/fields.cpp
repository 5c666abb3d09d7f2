#include "scaffolding/server/http/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/json_error.h"
#include "scaffolding/nn/closest.h"

namespace sf::server {

namespace {

constexpr size_t kMostUnknown = 20;  // names that are told: what each may have meant takes time

const char* words_of(FieldKind kind) {
  switch (kind) {
    case FieldKind::Text: return "text";
    case FieldKind::Whole: return "a whole number";
    case FieldKind::Number: return "a number";
    case FieldKind::Flag: return "true or false";
    case FieldKind::Texts: return "a list of texts";
    case FieldKind::Object: return "an object";
    case FieldKind::Any: return "a value";
  }
  return "";
}

// 20.0 is a whole number, as JavaScript writes and reads it.
bool is_whole(const json& v) {
  if (v.is_number_unsigned()) return v.get<uint64_t>() <= uint64_t(INT64_MAX);
  if (v.is_number_integer()) return true;
  return v.is_number_float() && std::trunc(v.get<double>()) == v.get<double>() && std::fabs(v.get<double>()) < 9e15;
}

bool has_kind(const json& v, FieldKind kind) {
  switch (kind) {
    case FieldKind::Text: return v.is_string();
    case FieldKind::Whole: return is_whole(v);
    case FieldKind::Number: return v.is_number();
    case FieldKind::Flag: return v.is_boolean();
    case FieldKind::Texts:
      return v.is_array() && std::all_of(v.begin(), v.end(), [](const json& e) { return e.is_string(); });
    case FieldKind::Object: return v.is_object();
    case FieldKind::Any: return true;
  }
  return false;
}

std::string number_text(double v) {
  char text[40];
  std::snprintf(text, sizeof text, "%.12g", v);
  return text;
}

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (auto& n : names) out += (out.empty() ? "" : ", ") + n;
  return out;
}

}  // namespace

std::string shown(const json& value) {
  std::string text = value.is_string() ? value.get<std::string>() : "";
  if (value.is_array()) return "a list of " + std::to_string(value.size());
  if (value.is_object()) return "an object";
  if (!value.is_string()) return io::json_text(value);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return "'" + printable(text) + "'";
}

const FieldSpec* Fields::find(std::string_view name) const {
  for (auto& f : all)
    if (f.name == name) return &f;
  return nullptr;
}

json parse_body(std::string_view text) {
  json body;
  std::vector<std::set<std::string>> names;  // of the objects that are open
  try {
    body = json::parse(text, [&](int depth, json::parse_event_t event, json& parsed) {
      SF_CHECK(depth <= kMostJsonDepth, "body: more than ", kMostJsonDepth, " lists and objects in each other");
      if (event == json::parse_event_t::object_start) names.emplace_back();
      if (event == json::parse_event_t::object_end) names.pop_back();
      if (event == json::parse_event_t::key)
        SF_CHECK(names.back().insert(parsed.get<std::string>()).second, "body: '",
                 printable(parsed.get<std::string>().substr(0, 60)), "' comes twice");
      return true;
    });
  } catch (const json::exception& e) {
    fail("body: no JSON: ", io::json_error(e));
  }
  SF_CHECK(body.is_object(), "body: must be a JSON object, got ", shown(body));
  return body;
}

std::vector<FieldError> check_fields(json& body, const Fields& fields) {
  std::vector<FieldError> errors;
  auto wrong = [&](const std::string& name, const char* kind, const std::string& reason) {
    errors.push_back({name, reason, kind});
  };
  for (auto& f : fields.all) {
    const auto at = body.find(f.name);
    if (at != body.end() && at->is_null()) body.erase(at);
    const auto it = body.find(f.name);
    if (it == body.end()) {
      if (f.required) wrong(f.name, "missing", "is needed");
      continue;
    }
    const json& v = *it;
    if (!has_kind(v, f.kind)) {
      wrong(f.name, "type", std::string("must be ") + words_of(f.kind) + ", got " + shown(v));
      continue;
    }
    if (f.kind == FieldKind::Whole && v.is_number_float()) *it = int64_t(v.get<double>());
    if (f.kind == FieldKind::Whole || f.kind == FieldKind::Number) {
      const double n = v.get<double>();
      if (!(n >= f.least && n <= f.most))
        wrong(f.name, "range",
              std::isinf(f.most)
                  ? "must be at least " + number_text(f.least) + ", got " + shown(v)
                  : "must be from " + number_text(f.least) + " to " + number_text(f.most) + ", got " + shown(v));
    }
    const size_t length = v.is_string() ? v.get_ref<const std::string&>().size() : v.is_array() ? v.size() : 0;
    if (length > f.longest)
      wrong(f.name, "range",
            "is too long: at most " + std::to_string(f.longest) + (v.is_string() ? " bytes" : " entries") + ", got " +
                std::to_string(length));
    if (!f.choices.empty() && v.is_string() &&
        std::find(f.choices.begin(), f.choices.end(), v.get<std::string>()) == f.choices.end())
      wrong(f.name, "choice", "must be one of " + list(f.choices) + ", got " + shown(v));
  }
  if (fields.others) return errors;
  std::vector<std::string> known;
  for (auto& f : fields.all) known.push_back(f.name);
  size_t unknown = 0;
  for (auto& [name, value] : body.items()) {
    if (fields.find(name)) continue;
    if (++unknown > kMostUnknown) break;
    const std::string near = nn::closest(name, known);
    wrong(name.substr(0, 100), "unknown",
          "is no field of this request" + (near.empty() ? "" : "; did you mean '" + near + "'?"));
  }
  return errors;
}

json typed(const std::map<std::string, std::string>& texts, const Fields& fields) {
  json out = json::object();
  for (auto& [name, text] : texts) {
    const FieldSpec* f = fields.find(name);
    json value = text;
    const char *begin = text.data(), *end = begin + text.size();
    if (f && f->kind == FieldKind::Whole) {
      int64_t n = 0;
      if (auto [at, error] = std::from_chars(begin, end, n); error == std::errc() && at == end && begin != end)
        value = n;
    } else if (f && f->kind == FieldKind::Number) {
      double n = 0;
      if (auto [at, error] = std::from_chars(begin, end, n);
          error == std::errc() && at == end && begin != end && std::isfinite(n))
        value = n;
    } else if (f && f->kind == FieldKind::Flag) {
      if (text == "true" || text == "True" || text == "1") value = true;
      if (text == "false" || text == "False" || text == "0") value = false;
    } else if (f && f->kind == FieldKind::Texts) {
      value = json::array({text});
    }
    out[name] = std::move(value);
  }
  return out;
}

json schema_of(const FieldSpec& f) {
  json out = json::object();
  switch (f.kind) {
    case FieldKind::Text: out["type"] = "string"; break;
    case FieldKind::Whole: out["type"] = "integer"; break;
    case FieldKind::Number: out["type"] = "number"; break;
    case FieldKind::Flag: out["type"] = "boolean"; break;
    case FieldKind::Texts: out = {{"type", "array"}, {"items", {{"type", "string"}}}}; break;
    case FieldKind::Object: out["type"] = "object"; break;
    case FieldKind::Any: break;
  }
  if (!f.doc.empty()) out["description"] = f.doc;
  if (std::isfinite(f.least)) out["minimum"] = f.least;
  if (std::isfinite(f.most)) out["maximum"] = f.most;
  if (f.kind == FieldKind::Text) out["maxLength"] = f.longest;
  if (f.kind == FieldKind::Texts) out["maxItems"] = f.longest;
  if (!f.choices.empty()) out["enum"] = f.choices;
  if (!f.usual.is_null()) out["default"] = f.usual;
  return out;
}

json schema_of(const Fields& fields) {
  json out{{"type", "object"}, {"properties", json::object()}, {"additionalProperties", fields.others}};
  json required = json::array();
  for (auto& f : fields.all) {
    out["properties"][f.name] = schema_of(f);
    if (f.required) required.push_back(f.name);
  }
  if (!required.empty()) out["required"] = required;
  return out;
}

}  // namespace sf::server
