#include "scaffolding/core/op.h"

#include <map>

#include "scaffolding/core/params.h"

namespace sf {

namespace {

std::map<std::string, OpEntry, std::less<>>& registry() {
  static std::map<std::string, OpEntry, std::less<>> r;
  return r;
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// Splits at commas outside brackets and quotes.
std::vector<std::string_view> split(std::string_view s) {
  std::vector<std::string_view> out;
  int depth = 0;
  bool quoted = false;
  size_t from = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    char c = s[i];
    if (c == '\'') quoted = !quoted;
    if (quoted) continue;
    depth += (c == '[' || c == '(') - (c == ']' || c == ')');
    if (c == ',' && depth == 0) {
      out.push_back(trim(s.substr(from, i - from)));
      from = i + 1;
    }
  }
  if (auto last = trim(s.substr(from)); !last.empty()) out.push_back(last);
  return out;
}

// A default in Python syntax: None True False 3 -1 1e-5 'same' [0, 1] ().
Value parse_default(const char* op, std::string_view s, ArgKind kind) {
  if (s == "None") return std::monostate{};
  if (s == "True") return true;
  if (s == "False") return false;
  if (s.front() == '\'') return std::string(s.substr(1, s.size() - 2));
  if (s.front() == '[' || s.front() == '(') {
    if (kind == ArgKind::Tensors) return Tensors{};
    Shape ints;
    Floats floats;
    for (auto part : split(s.substr(1, s.size() - 2))) {
      double d = std::stod(std::string(part));
      floats.push_back(d);
      if (kind == ArgKind::Ints) ints.push_back(int64_t(d));
    }
    if (kind == ArgKind::Ints) return ints;
    return floats;
  }
  std::string text(s);
  size_t used = 0;
  bool real = text.find_first_of(".e") != text.npos || text == "inf" || text == "-inf" || kind == ArgKind::Float;
  Value v;
  if (real) v = std::stod(text, &used);
  else v = int64_t(std::stoll(text, &used));
  SF_CHECK_AS(RuntimeError, used == text.size(), "SF_OP ", op, ": cannot read the default '", s, "'");
  return v;
}

}  // namespace

const char* name(ArgKind k) {
  static constexpr const char* names[] = {"a tensor", "a list of tensors", "an integer", "a number",
                                          "a bool",   "a number",          "integers",   "numbers",
                                          "a string", "a dtype",           "a device",   "a generator"};
  return names[int(k)];
}

void detail::wrong_kind(ArgKind wanted, const Value& got) {
  static constexpr const char* names[] = {"None",     "a tensor",   "a bool",  "an integer",        "a float",
                                          "a string", "integers",   "numbers", "a list of tensors", "a dtype",
                                          "a device", "a generator"};
  fail<TypeError>("op: an argument must be ", name(wanted), ", got ", names[got.index()]);
}

std::vector<ArgInfo> detail::parse_params(const char* owner, std::string_view params, std::span<const ArgType> types) {
  std::vector<ArgInfo> out;
  auto parts = split(params);
  SF_CHECK_AS(RuntimeError, parts.size() == types.size(), owner, ": names ", parts.size(), " parameters for ",
              types.size(), " arguments");
  for (size_t i = 0; i < parts.size(); ++i) {
    auto eq = parts[i].find('=');
    ArgInfo a{std::string(trim(parts[i].substr(0, eq))), types[i].kind, types[i].optional, eq != parts[i].npos, {}};
    if (a.has_default) a.fallback = parse_default(owner, trim(parts[i].substr(eq + 1)), a.kind);
    if (a.has_default && std::holds_alternative<std::monostate>(a.fallback)) a.optional = true;
    out.push_back(std::move(a));
  }
  return out;
}

OpEntry& detail::add_op(const char* name, std::string_view params, std::span<const ArgType> types,
                        Value (*call)(std::span<const Value>), bool several) {
  OpEntry& e = registry()[name];
  SF_CHECK_AS(RuntimeError, e.name.empty(), "SF_OP: ", name, " is defined twice");
  e.name = name;
  e.params = params;
  e.call = call;
  e.several = several;
  e.reference = std::string("torch.") + name;
  e.args = parse_params(name, params, types);
  return e;
}

const std::vector<OpEntry*>& all_ops() {
  static const std::vector<OpEntry*> v = [] {
    std::vector<OpEntry*> out;
    for (auto& [n, e] : registry()) out.push_back(&e);
    return out;
  }();
  return v;
}

OpEntry* find_op(std::string_view name) {
  auto it = registry().find(name);
  return it == registry().end() ? nullptr : &it->second;
}

Value call_op(std::string_view name, std::vector<Value> args) {
  OpEntry* op = find_op(name);
  SF_CHECK(op, "call_op: there is no op '", name, "'");
  SF_CHECK_AS(TypeError, args.size() <= op->args.size(), name, ": takes at most ", op->args.size(), " arguments, got ",
              args.size());
  for (size_t i = args.size(); i < op->args.size(); ++i) {
    SF_CHECK_AS(TypeError, op->args[i].has_default, name, ": missing argument '", op->args[i].name, "'");
    args.push_back(op->args[i].fallback);
  }
  return op->call(args);
}

}  // namespace sf
