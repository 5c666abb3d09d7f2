// UTF-8 text and Unicode's properties, by utf8proc. Texts are valid UTF-8 once require_utf8 has seen them.
// Free functions;
// any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sf::tokenizers {

// ValueError naming `who` and the first wrong byte's position.
void require_utf8(std::string_view text, const char* who);
// What is not UTF-8 becomes U+FFFD, one for each maximal part of a character,
// as Rust's and Python's lossy decoders have it.
std::string repair_utf8(std::string_view bytes);

// The character at `at`, which moves behind it. The text is valid.
char32_t next_character(std::string_view text, size_t& at);
char32_t last_character(std::string_view text);  // of a text that is not empty
size_t character_bytes(std::string_view text, size_t at);
void append_character(std::string& text, char32_t c);
bool is_ascii(std::string_view text);

enum class NormalForm { NFC, NFD, NFKC, NFKD };
std::string normalize(std::string_view text, NormalForm form);
std::string lowercase(std::string_view text);  // character by character: a final sigma is as any other

bool is_whitespace(char32_t c);  // White_Space
bool is_numeric(char32_t c);     // Nd, Nl, No
bool is_mark(char32_t c);        // Mn, Mc, Me
bool is_nonspacing_mark(char32_t c);
bool is_punctuation(char32_t c);                             // P*, and ASCII's symbols
bool is_control(char32_t c);                                 // C* without tab, line feed and carriage return
bool is_word(char32_t c);                                    // \w
std::vector<size_t> grapheme_starts(std::string_view text);  // byte offsets, and the text's size at the end

// Byte-level BPE writes every byte as a printable character: 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF as themselves, the
// others as U+0100 and up (GPT-2's bytes_to_unicode).
std::string byte_level(std::string_view bytes);
const std::string& byte_character(unsigned char byte);
int byte_of_character(char32_t c);  // -1 for any other character

}  // namespace sf::tokenizers
