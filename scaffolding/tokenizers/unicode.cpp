#include "scaffolding/tokenizers/unicode.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include <utf8proc.h>

#include "scaffolding/core/error.h"

namespace sf::tokenizers {

namespace {

// Bytes of the well-formed character at `at`; 0 and the number of bytes to skip where there is none (Unicode,
// table 3-7).
struct Decoded {
  size_t bytes, skip;
};
Decoded decode_at(std::string_view s, size_t at) {
  auto byte = [&](size_t i) { return at + i < s.size() ? static_cast<unsigned char>(s[at + i]) : 0u; };
  unsigned b = byte(0);
  if (b < 0x80) return {1, 1};
  size_t n = b >= 0xC2 && b <= 0xDF ? 2 : b >= 0xE0 && b <= 0xEF ? 3 : b >= 0xF0 && b <= 0xF4 ? 4 : 0;
  if (n == 0) return {0, 1};
  unsigned least = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80, most = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < least || byte(1) > most) return {0, 1};
  for (size_t i = 2; i < n; ++i)
    if ((byte(i) & 0xC0) != 0x80) return {0, i};
  return {n, n};
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(utf8proc_int32_t(c)); }

struct ByteTable {
  std::array<std::string, 256> text;
  std::array<int, 324> byte;
  ByteTable() {
    byte.fill(-1);
    char32_t next = 256;
    for (int b = 0; b < 256; ++b) {
      bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      char32_t c = itself ? char32_t(b) : next++;
      append_character(text[size_t(b)], c);
      byte[c] = b;
    }
  }
};
const ByteTable& byte_table() {
  static const ByteTable table;
  return table;
}

}  // namespace

void require_utf8(std::string_view text, const char* who) {
  for (size_t i = 0; i < text.size();) {
    Decoded d = decode_at(text, i);
    SF_CHECK(d.bytes, who, ": text must be UTF-8, byte ", i, " is not");
    i += d.bytes;
  }
}

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    Decoded d = decode_at(bytes, i);
    out.append(d.bytes ? bytes.substr(i, d.bytes) : std::string_view("\xEF\xBF\xBD"));
    i += d.skip;
  }
  return out;
}

size_t character_bytes(std::string_view text, size_t at) {
  auto b = static_cast<unsigned char>(text[at]);
  return std::min(text.size() - at, size_t(b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4));
}

char32_t next_character(std::string_view text, size_t& at) {
  size_t n = character_bytes(text, at);
  auto b = static_cast<unsigned char>(text[at]);
  char32_t c = n == 1 ? b : b & (0x7F >> n);
  for (size_t i = 1; i < n; ++i) c = (c << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3F);
  at += n;
  return c;
}

char32_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return next_character(text, at);
}

void append_character(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += char(c);
  } else if (c < 0x800) {
    text += char(0xC0 | (c >> 6));
    text += char(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    text += char(0xE0 | (c >> 12));
    text += char(0x80 | ((c >> 6) & 0x3F));
    text += char(0x80 | (c & 0x3F));
  } else {
    text += char(0xF0 | (c >> 18));
    text += char(0x80 | ((c >> 12) & 0x3F));
    text += char(0x80 | ((c >> 6) & 0x3F));
    text += char(0x80 | (c & 0x3F));
  }
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string normalize(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::NFC || form == NormalForm::NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::NFKC || form == NormalForm::NFKD) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* out = nullptr;
  auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), utf8proc_ssize_t(text.size()), &out,
                        utf8proc_option_t(options));
  std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(out, std::free);
  SF_CHECK_AS(RuntimeError, n >= 0, "tokenizer: Unicode normalization of ", text.size(),
              " bytes: ", utf8proc_errmsg(n));
  return {reinterpret_cast<const char*>(out), size_t(n)};
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    char32_t c = next_character(text, i);
    if (c < 0x80) {
      out += char(c >= 'A' && c <= 'Z' ? c + 32 : c);
    } else if (c == 0x130) {
      out += "i\xCC\x87";  // the one character whose lower case is two, whatever the language (SpecialCasing.txt)
    } else {
      append_character(out, char32_t(utf8proc_tolower(utf8proc_int32_t(c))));
    }
  }
  return out;
}

bool is_whitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  if (c == 0x85) return true;
  auto k = category(c);
  return k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL || k == UTF8PROC_CATEGORY_ZP;
}
bool is_numeric(char32_t c) {
  auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}
bool is_mark(char32_t c) {
  auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}
bool is_nonspacing_mark(char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }
bool is_punctuation(char32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  auto k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}
bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  auto k = category(c);
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CN ||
         k == UTF8PROC_CATEGORY_CO;
}
bool is_word(char32_t c) {
  auto k = category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC || c == 0x200C ||
         c == 0x200D;
}

std::vector<size_t> grapheme_starts(std::string_view text) {
  std::vector<size_t> starts;
  utf8proc_int32_t state = 0;
  char32_t before = 0;
  for (size_t i = 0; i < text.size();) {
    size_t at = i;
    char32_t c = next_character(text, i);
    if (at == 0 || utf8proc_grapheme_break_stateful(utf8proc_int32_t(before), utf8proc_int32_t(c), &state))
      starts.push_back(at);
    before = c;
  }
  starts.push_back(text.size());
  return starts;
}

const std::string& byte_character(unsigned char byte) { return byte_table().text[byte]; }

std::string byte_level(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 4);
  for (char c : bytes) out += byte_character(static_cast<unsigned char>(c));
  return out;
}

int byte_of_character(char32_t c) { return c < 324 ? byte_table().byte[c] : -1; }

}  // namespace sf::tokenizers
