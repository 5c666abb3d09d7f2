// multipart/form-data (RFC 7578): a form with files, as a request's body. What comes is a stranger's: counts and
// lengths are bounded, and nothing is copied but names.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sf::server {

struct FormPart {
  std::string name;
  std::string file_name;   // "" where it is a plain field
  std::string type;        // Content-Type, in small letters; "" where there is none
  std::string_view value;  // into the body
};

inline constexpr size_t kMostFormParts = 64, kMostPartHeader = 4096;  // bytes of a part's headers

// The boundary that a Content-Type names. ValueError for another type, and for one without a boundary of 1 to 70
// characters.
std::string form_boundary(std::string_view content_type);
// In the order of the body. ValueError saying what is wrong: a part without a name, no end, more than kMostFormParts.
std::vector<FormPart> parse_form(std::string_view body, std::string_view boundary);

}  // namespace sf::server
