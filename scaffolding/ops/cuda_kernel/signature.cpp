#include "scaffolding/ops/cuda_kernel/signature.h"

#include <cctype>

#include "scaffolding/core/error.h"

namespace sf::cuda {

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Comments and the insides of strings become blanks.
std::string without_comments(std::string s) {
  for (size_t i = 0; i < s.size(); ++i) {
    size_t end = i;
    if (s.compare(i, 3, "\"C\"") == 0) {
      i += 2;
      continue;
    }
    if (s.compare(i, 2, "//") == 0) end = s.find('\n', i);
    else if (s.compare(i, 2, "/*") == 0)
      end = s.find("*/", i + 2) == std::string::npos ? std::string::npos : s.find("*/", i + 2) + 2;
    else if (s[i] == '"') {
      end = i + 1;
      while (end < s.size() && s[end] != '"') end += s[end] == '\\' ? 2 : 1;
      ++end;
    } else {
      continue;
    }
    end = std::min(end, s.size());
    for (size_t k = i; k < end; ++k)
      if (s[k] != '\n') s[k] = ' ';
    i = end - 1;
  }
  return s;
}

std::vector<std::string> words_of(const std::string& s) {
  std::vector<std::string> words;
  for (size_t i = 0; i < s.size();) {
    if (std::isspace(static_cast<unsigned char>(s[i]))) {
      ++i;
    } else if (is_word(s[i]) || s[i] == ':') {
      size_t end = i;
      while (end < s.size() && (is_word(s[end]) || s[end] == ':')) ++end;
      words.push_back(s.substr(i, end - i));
      i = end;
    } else {
      words.push_back(s.substr(i++, 1));
    }
  }
  return words;
}

struct Type {
  const char* name;
  DType dtype;
  KernelParameter::Kind kind;
  int bytes;
  bool is_signed;
};
constexpr auto Integer = KernelParameter::Integer;
constexpr auto Real = KernelParameter::Real;
const Type kTypes[] = {
    {"float", kFloat32, Real, 4, true},
    {"double", kFloat64, Real, 8, true},
    {"__half", kFloat16, KernelParameter::Pointer, 0, true},
    {"half", kFloat16, KernelParameter::Pointer, 0, true},
    {"__nv_bfloat16", kBFloat16, KernelParameter::Pointer, 0, true},
    {"nv_bfloat16", kBFloat16, KernelParameter::Pointer, 0, true},
    {"bool", kBool, Integer, 1, false},
    {"unsigned char", kUInt8, Integer, 1, false},
    {"uint8_t", kUInt8, Integer, 1, false},
    {"signed char", kInt8, Integer, 1, true},
    {"char", kInt8, Integer, 1, true},
    {"int8_t", kInt8, Integer, 1, true},
    {"short", kInt16, Integer, 2, true},
    {"int16_t", kInt16, Integer, 2, true},
    {"int", kInt32, Integer, 4, true},
    {"int32_t", kInt32, Integer, 4, true},
    {"unsigned", kInt32, Integer, 4, false},
    {"unsigned int", kInt32, Integer, 4, false},
    {"uint32_t", kInt32, Integer, 4, false},
    {"long long", kInt64, Integer, 8, true},
    {"long", kInt64, Integer, 8, true},
    {"int64_t", kInt64, Integer, 8, true},
    {"unsigned long long", kInt64, Integer, 8, false},
    {"unsigned long", kInt64, Integer, 8, false},
    {"uint64_t", kInt64, Integer, 8, false},
    {"size_t", kInt64, Integer, 8, false},
};

size_t closing(const std::string& s, size_t open, char from, char to) {
  int depth = 0;
  for (size_t i = open; i < s.size(); ++i) {
    depth += (s[i] == from) - (s[i] == to);
    if (depth == 0) return i;
  }
  return std::string::npos;
}

}  // namespace

KernelParameter parameter_of(const std::string& kernel, const std::string& declaration) {
  KernelParameter p;
  std::vector<std::string> words;  // of the type and the name
  int stars = 0;
  bool other = false;
  for (std::string word : words_of(declaration)) {
    if (word.rfind("std::", 0) == 0) word = word.substr(5);
    if (word == "const") p.is_const = p.is_const || stars == 0;  // `* const`: the pointer itself
    else if (word == "*") ++stars;
    else if (!is_word(word[0])) other = true;
    else if (word.rfind("__restrict", 0) != 0) words.push_back(word);
  }
  const Type* type = nullptr;
  size_t length = 0;  // words of the type: as many as make a known one
  std::string joined;
  for (size_t i = 0; i < words.size(); ++i) {
    joined += (i ? " " : "") + words[i];
    std::string plain = joined.size() > 4 && joined.ends_with(" int") && joined != "unsigned int"
                            ? joined.substr(0, joined.size() - 4)
                            : joined;
    for (auto& t : kTypes)
      if (plain == t.name) type = &t, length = i + 1;
  }
  bool is_void = !words.empty() && words[0] == "void" && stars == 1;
  if (is_void) length = 1;
  if (words.size() > length) p.name = words.back();
  bool fits = !other && stars <= 1 && length > 0 && words.size() <= length + 1 &&
              (stars == 1 || type->kind != KernelParameter::Pointer);
  SF_CHECK(fits, "cuda: kernel '", kernel, "': a parameter `", declaration,
           "` cannot be passed; parameters are pointers and numbers of C++'s types, such as ",
           "const float* x, __half* y, int n; a pointer to another type is declared as void* in parameters=[...]");
  p.type = p.is_const ? "const " : "";
  p.type += is_void ? "void" : type->name;
  if (stars) p.type += "*";
  if (type) p.dtype = type->dtype;
  if (stars) return p;
  p.kind = type->kind;
  p.bytes = type->bytes;
  p.is_signed = type->is_signed;
  return p;
}

std::vector<KernelParameter> parameters_of(const std::string& source, const std::string& name) {
  std::string s = without_comments(source), plain = name.substr(0, name.find('<'));
  if (size_t at = plain.rfind("::"); at != std::string::npos) plain = plain.substr(at + 2);
  for (size_t at = s.find("__global__"); at != std::string::npos; at = s.find("__global__", at + 1)) {
    size_t open = at;
    std::string found;
    while ((open = s.find('(', open)) != std::string::npos) {  // past __launch_bounds__(...)
      size_t end = s.find_last_not_of(" \t\n\r", open - 1) + 1, begin = end;
      while (begin > at && is_word(s[begin - 1])) --begin;
      found = s.substr(begin, end - begin);
      if (found != "__launch_bounds__" && found != "__cluster_dims__") break;
      open = closing(s, open, '(', ')');
    }
    if (found != plain || open == std::string::npos) continue;
    size_t close = closing(s, open, '(', ')');
    if (close == std::string::npos) break;
    std::vector<KernelParameter> parameters;
    std::string list = s.substr(open + 1, close - open - 1);
    for (size_t i = 0; i < list.size();) {
      size_t end = std::min(list.find(',', i), list.size());
      std::string one = list.substr(i, end - i);
      if (one.find_first_not_of(" \t\n\r") != std::string::npos) {
        size_t first = one.find_first_not_of(" \t\n\r");
        one = one.substr(first, one.find_last_not_of(" \t\n\r") + 1 - first);
        if (one != "void") parameters.push_back(parameter_of(name, one));
      }
      i = end + 1;
    }
    return parameters;
  }
  fail("cuda: kernel '", name, "': the source has no `__global__ void ", plain, "(...)`");
}

}  // namespace sf::cuda
