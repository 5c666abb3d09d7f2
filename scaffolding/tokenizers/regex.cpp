#define PCRE2_CODE_UNIT_WIDTH 8
#include "scaffolding/tokenizers/regex.h"

#include <pcre2.h>

#include "scaffolding/core/error.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

constexpr size_t kMaxPattern = 20'000;       // bytes
constexpr uint32_t kMatchLimit = 2'000'000;  // steps of one match
constexpr uint32_t kHeapLimit = 64 * 1024;   // KiB

// Unicode's White_Space and word characters, where PCRE2's \s takes U+180E too and its \w knows neither marks nor
// connectors.
constexpr const char* kSpace = "\\p{Z}\\t-\\r\\x{85}";
constexpr const char* kWord =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{"
    "1F189}";

std::string translate(const std::string& pattern, const std::string& where) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      char e = pattern[++i];
      const char* set = e == 's' || e == 'S' ? kSpace : e == 'w' || e == 'W' ? kWord : nullptr;
      bool inverse = e == 'S' || e == 'W';
      if (!set || (inverse && in_class)) {
        out += c, out += e;
      } else {
        out += in_class ? std::string(set) : std::string(inverse ? "[^" : "[") + set + "]";
      }
    } else if (in_class) {
      SF_CHECK_AS(NotSupported, (c != '[' || pattern[i + 1] == ':') && (c != '&' || pattern[i + 1] != '&'), where,
                  ": regex '", pattern, "' has a set within a set, which is not supported");
      in_class = c != ']';
      if (c == '[') {  // [:alpha:]
        size_t end = pattern.find(":]", i);
        SF_CHECK(end != std::string::npos, where, ": regex '", pattern, "' has '[:' without ':]'");
        out.append(pattern, i, end + 2 - i);
        i = end + 1;
        in_class = true;
      } else {
        out += c;
      }
    } else {
      out += c;
      if (c == '[') {
        in_class = true;
        if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
        if (i + 1 < pattern.size() && pattern[i + 1] == ']') out += pattern[++i];
      }
    }
  }
  return out;
}

std::string reason(int error) {
  PCRE2_UCHAR text[160];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

Regex::Regex(const std::string& pattern, const std::string& where) : where_(where) {
  SF_CHECK(pattern.size() <= kMaxPattern, where, ": a regex of ", pattern.size(), " bytes is too long");
  require_utf8(pattern, where.c_str());
  std::string translated = translate(pattern, where);
  std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  SF_CHECK_AS(RuntimeError, context != nullptr, where, ": no memory for a regex");
  pcre2_set_parens_nest_limit(context.get(), 50);
  int error = 0;
  PCRE2_SIZE at = 0;
  auto* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, context.get());
  SF_CHECK(code, where, ": regex '", pattern, "' is refused: ", reason(error));
  code_ = std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where there is none, pcre2_match interprets
}

std::vector<Range> Regex::find_all(std::string_view text) const {
  auto* code = static_cast<pcre2_code*>(code_.get());
  std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(pcre2_match_data_create(1, nullptr),
                                                                      pcre2_match_data_free);
  std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context(pcre2_match_context_create(nullptr),
                                                                               pcre2_match_context_free);
  SF_CHECK_AS(RuntimeError, data && context, where_, ": no memory to match a regex");
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimit);
  std::vector<Range> out;
  auto* chars = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t at = 0, last_end = size_t(-1);
  while (at <= text.size()) {
    int rc = pcre2_match(code, chars, text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
      rc = pcre2_match(code, chars, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), context.get());
    if (rc == PCRE2_ERROR_NOMATCH) break;
    SF_CHECK(rc >= 0, where_, ": the regex cannot be matched with a text of ", text.size(), " bytes: ", reason(rc));
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data.get());
    size_t begin = found[0], end = found[1];
    SF_CHECK(begin <= end && begin >= at, where_, ": the regex sets a match's start behind its end");
    bool empty = begin == end;
    if (!empty || begin != last_end) out.push_back({begin, end}), last_end = end;
    if (empty && end == text.size()) break;
    at = empty ? end + character_bytes(text, end) : end;
  }
  return out;
}

}  // namespace sf::tokenizers
