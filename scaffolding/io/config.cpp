#include "scaffolding/io/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/json_error.h"

namespace sf::io {

namespace {

using json = nlohmann::ordered_json;

constexpr size_t kConfigBytes = 16 << 20;
constexpr int kConfigDepth = 64;

struct Place {
  const char* who;
  const char* field;
  [[noreturn]] void wrong(const char* wanted, const Object& got) const {
    fail<TypeError>(who, ": ", field, " must be ", wanted, ", got ", Object::name(got.kind()));
  }
};

void read(const Place& at, bool& to, const Object& o) {
  if (!o.is(Object::Bool)) at.wrong("a bool", o);
  to = o.as_bool();
}
void read(const Place& at, int64_t& to, const Object& o) {
  // 1000.0 in a hand-written file is 1000; 10.5 steps are a mistake.
  if (o.is(Object::Float) && std::trunc(o.as_float()) == o.as_float() && std::abs(o.as_float()) < 9e15) {
    to = int64_t(o.as_float());
  } else if (o.is(Object::Int)) {
    to = o.as_int();
  } else {
    at.wrong("an integer", o);
  }
}
void read(const Place& at, double& to, const Object& o) {
  if (!o.is(Object::Float) && !o.is(Object::Int)) at.wrong("a number", o);
  to = o.as_float();
}
void read(const Place& at, std::string& to, const Object& o) {
  if (!o.is(Object::String)) at.wrong("a string", o);
  to = o.text();
}
void read(const Place&, Object& to, const Object& o) { to = o; }
template <class T> void read(const Place& at, std::optional<T>& to, const Object& o) {
  to.reset();
  if (!o.is(Object::None)) read(at, to.emplace(), o);
}
template <class T> void read(const Place& at, std::vector<T>& to, const Object& o) {
  if (!o.is_sequence()) at.wrong(std::is_same_v<T, std::string> ? "a list of strings" : "a list of numbers", o);
  to.clear();
  for (auto& item : o.items()) read(at, to.emplace_back(), item);
}

Object value_of(bool v) { return v; }
Object value_of(int64_t v) { return v; }
Object value_of(double v) { return v; }
Object value_of(const std::string& v) { return Object(std::string_view(v)); }
Object value_of(const Object& v) { return v; }
template <class T> Object value_of(const std::vector<T>& v) {
  std::vector<Object> items;
  for (auto& x : v) items.push_back(value_of(x));
  return Object::container(Object::List, std::move(items));
}
template <class T> Object value_of(const std::optional<T>& v) { return v ? value_of(*v) : Object(); }

Object object_of(const json& j) {
  switch (j.type()) {
    case json::value_t::boolean: return j.get<bool>();
    case json::value_t::number_integer: return j.get<int64_t>();
    case json::value_t::number_unsigned: {
      auto v = j.get<uint64_t>();
      return v <= uint64_t(INT64_MAX) ? Object(int64_t(v)) : Object(double(v));
    }
    case json::value_t::number_float: return j.get<double>();
    case json::value_t::string: return Object(std::string_view(j.get_ref<const std::string&>()));
    case json::value_t::array: {
      std::vector<Object> items;
      for (auto& item : j) items.push_back(object_of(item));
      return Object::container(Object::List, std::move(items));
    }
    case json::value_t::object: {
      std::vector<Object> items;
      for (auto& [key, value] : j.items()) {
        items.push_back(Object(std::string_view(key)));
        items.push_back(object_of(value));
      }
      return Object::container(Object::Dict, std::move(items));
    }
    default: return {};
  }
}

// nlohmann's dump writes null for what JSON has no number for; diffusers' files say Infinity.
void format(std::string& out, const Object& o, size_t indent) {
  auto text = [](const std::string& s) { return json(s).dump(-1, ' ', true, json::error_handler_t::replace); };
  switch (o.kind()) {
    case Object::None: out += "null"; return;
    case Object::Bool: out += o.as_bool() ? "true" : "false"; return;
    case Object::Int: out += std::to_string(o.as_int()); return;
    case Object::Float: {
      double v = o.as_float();
      out += std::isnan(v) ? "NaN" : std::isinf(v) ? (v > 0 ? "Infinity" : "-Infinity") : json(v).dump();
      return;
    }
    case Object::String: out += text(o.text()); return;
    default: break;
  }
  SF_CHECK_AS(TypeError, o.is_sequence() || o.is_dict(), "save_config: cannot write ", Object::name(o.kind()),
              " as JSON");
  bool dict = o.is_dict();
  auto& items = o.items();
  if (items.empty()) {
    out += dict ? "{}" : "[]";
    return;
  }
  out += dict ? "{" : "[";
  for (size_t i = 0; i < items.size(); ++i) {
    out += i ? ",\n" : "\n";
    out.append(indent + 2, ' ');
    if (dict) out += text(items[i++].text()) + ": ";
    format(out, items[i], indent + 2);
  }
  out += "\n";
  out.append(indent, ' ');
  out += dict ? "}" : "]";
}

// Python's json module reads and writes these three words, which JSON itself does not have. They pass the parser as
// strings that begin with a control character, and words_back makes numbers of them.
std::string without_words(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    if (in_string && text[i] == '\\' && i + 1 < text.size()) {
      out.append(text, i, 2);
      i += 2;
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    bool replaced = false;
    for (std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (in_string || text.compare(i, word.size(), word) != 0) continue;
      out += "\"\\u0001";
      out += word;
      out += '"';
      i += word.size();
      replaced = true;
      break;
    }
    if (!replaced) out += text[i++];
  }
  return out;
}
void words_back(json& j) {
  if (j.is_structured()) {
    for (auto& item : j) words_back(item);
  } else if (j.is_string()) {
    auto& s = j.get_ref<const std::string&>();
    if (s == "\x01-Infinity") j = -INFINITY;
    else if (s == "\x01Infinity") j = INFINITY;
    else if (s == "\x01NaN") j = NAN;
  }
}

}  // namespace

ConfigRest read_fields(const char* who, const Fields& fields, const Object& dict) {
  if (!dict.is_dict()) fail<TypeError>(who, ": config must be a dict, got ", Object::name(dict.kind()));
  std::vector<std::string> keep;
  if (auto* names = dict.find("_use_default_values"); names && names->is_sequence())
    for (auto& n : names->items())
      if (n.is(Object::String)) keep.push_back(n.text());
  ConfigRest rest;
  std::vector<bool> named(fields.size());
  auto& items = dict.items();
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (!items[i].is(Object::String))
      fail<TypeError>(who, ": the keys of a config must be strings, got ", Object::name(items[i].kind()));
    const std::string& key = items[i].text();
    if (std::find(keep.begin(), keep.end(), key) != keep.end()) continue;
    auto f = std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return key == field.name; });
    if (f == fields.end()) {
      if (key != "_use_default_values") {
        rest.unknown.items().push_back(items[i]);
        rest.unknown.items().push_back(items[i + 1]);
      }
      continue;
    }
    named[size_t(f - fields.begin())] = true;
    std::visit([&](auto* place) { read(Place{who, f->name}, *place, items[i + 1]); }, f->place);
  }
  for (size_t i = 0; i < fields.size(); ++i)
    if (!named[i]) rest.defaulted.push_back(fields[i].name);
  return rest;
}

std::vector<int64_t> ints_for_blocks(const char* who, const char* field, const Object& value, size_t n) {
  Place at{who, field};
  auto number = [&](const Object& o) {
    int64_t v = 0;
    if (o.is(Object::Bool)) return int64_t(o.as_bool());
    read(at, v, o);
    return v;
  };
  if (!value.is_sequence()) return std::vector<int64_t>(n, number(value));
  SF_CHECK(value.items().size() == n, who, ": ", field, " must have one entry for each of the ", n, " blocks, got ",
           value.items().size());
  std::vector<int64_t> out;
  for (auto& item : value.items()) out.push_back(number(item));
  return out;
}

Object write_fields(const Fields& fields) {
  std::vector<Object> items;
  for (auto& f : fields) {
    items.push_back(Object(f.name));
    items.push_back(std::visit([](auto* place) { return value_of(*place); }, f.place));
  }
  return Object::container(Object::Dict, std::move(items));
}

Object whole_config(const Fields& fields, const ConfigRest& rest) {
  Object dict = write_fields(fields);
  auto& items = dict.items();
  auto& unknown = rest.unknown.items();
  items.insert(items.end(), unknown.begin(), unknown.end());
  if (!rest.defaulted.empty()) {
    std::vector<Object> list;
    for (auto& f : rest.defaulted) list.push_back(Object(std::string_view(f)));
    items.push_back("_use_default_values");
    items.push_back(Object::container(Object::List, std::move(list)));
  }
  return dict;
}

Object saved_config(const char* class_name, const Object& config) {
  std::vector<Object> items{"_class_name", class_name};
  for (size_t i = 0; i + 1 < config.items().size(); i += 2) {
    const std::string& key = config.items()[i].text();
    if (key == "_class_name" || key == "_use_default_values") continue;
    items.push_back(config.items()[i]);
    items.push_back(config.items()[i + 1]);
  }
  return Object::container(Object::Dict, std::move(items));
}

Object parse_config(std::string_view text, const std::string& where) {
  SF_CHECK(text.size() <= kConfigBytes, where, ": has ", text.size(), " bytes, at most ", kConfigBytes, " are read");
  try {
    auto shallow = [&](int depth, json::parse_event_t, json&) {
      SF_CHECK(depth < kConfigDepth, where, ": JSON nested deeper than ", kConfigDepth);
      return true;
    };
    const bool has_words = text.find("NaN") != text.npos || text.find("Infinity") != text.npos;
    json tree = has_words ? json::parse(without_words(text), shallow) : json::parse(text, shallow);
    SF_CHECK(tree.is_object(), where, ": must be a JSON object, got ", tree.type_name());
    if (has_words) words_back(tree);
    return object_of(tree);
  } catch (const json::exception& e) {
    fail(where, ": is no JSON: ", json_error(e));
  }
}

std::string format_config(const Object& dict) {
  std::string out;
  format(out, dict, 0);
  return out + "\n";
}

Object read_config_file(const std::string& path) {
  Bytes bytes = Bytes::read(path);
  return parse_config({bytes.chars(), size_t(bytes.size)}, path);
}

void write_config_file(const Object& dict, const std::string& path) {
  std::string text = format_config(dict);
  ReplacingFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace sf::io
