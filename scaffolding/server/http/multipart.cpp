#include "scaffolding/server/http/multipart.h"

#include <map>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"

namespace sf::server {

namespace {

constexpr std::string_view kLine = "\r\n";

char small(char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; }

std::string lower(std::string_view text) {
  std::string out;
  for (char c : text) out += small(c);
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// `form-data; name="a"; filename="b"`: what stands before the first ';', and the parameters by their small names.
// Browsers write a quote within quotes as %22, others as \".
struct Parameters {
  std::string value;
  std::map<std::string, std::string> of;
};
Parameters parameters_of(std::string_view text) {
  Parameters out;
  const size_t first = std::min(text.find(';'), text.size());
  out.value = lower(trimmed(text.substr(0, first)));
  for (size_t at = first; at < text.size();) {
    ++at;  // the ';'
    const size_t equals = text.find_first_of("=;", at);
    if (equals == text.npos) break;
    if (text[equals] == ';') {
      at = equals;
      continue;
    }
    const std::string name = lower(trimmed(text.substr(at, equals - at)));
    std::string value;
    at = equals + 1;
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
    if (at < text.size() && text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] == '\\' && at + 1 < text.size() && (text[at + 1] == '"' || text[at + 1] == '\\')) ++at;
        value += text[at];
      }
      SF_CHECK(at < text.size(), "multipart: a quoted value has no end");
      at = std::min(text.find(';', at), text.size());
    } else {
      const size_t end = std::min(text.find(';', at), text.size());
      value = trimmed(text.substr(at, end - at));
      at = end;
    }
    out.of.emplace(name, value);
  }
  return out;
}

FormPart part_of(std::string_view headers) {
  FormPart part;
  bool named = false;
  while (!headers.empty()) {
    const size_t end = std::min(headers.find(kLine), headers.size());
    const std::string_view line = headers.substr(0, end);
    headers.remove_prefix(std::min(end + kLine.size(), headers.size()));
    const size_t colon = line.find(':');
    SF_CHECK(colon != line.npos, "multipart: a header of a part is 'name: value', got '", printable(line), "'");
    const std::string name = lower(trimmed(line.substr(0, colon)));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (name == "content-type") part.type = lower(trimmed(value.substr(0, value.find(';'))));
    if (name != "content-disposition") continue;
    const Parameters p = parameters_of(value);
    SF_CHECK(p.value == "form-data", "multipart: a part must be form-data, got '", printable(p.value), "'");
    if (auto at = p.of.find("name"); at != p.of.end()) part.name = at->second, named = true;
    if (auto at = p.of.find("filename"); at != p.of.end()) part.file_name = at->second;
  }
  SF_CHECK(named, "multipart: a part has no name");
  return part;
}

}  // namespace

std::string form_boundary(std::string_view content_type) {
  const Parameters p = parameters_of(content_type);
  SF_CHECK(p.value == "multipart/form-data", "multipart: the content type must be multipart/form-data, got '",
           printable(p.value.substr(0, 100)), "'");
  const auto at = p.of.find("boundary");
  SF_CHECK(at != p.of.end() && !at->second.empty() && at->second.size() <= 70 &&
               at->second.find_first_of("\r\n") == std::string::npos,
           "multipart: the content type must name a boundary of 1 to 70 characters");
  return at->second;
}

std::vector<FormPart> parse_form(std::string_view body, std::string_view boundary) {
  const std::string mark = "\r\n--" + std::string(boundary);
  std::vector<FormPart> parts;
  // The first may stand at the very beginning; what is before it is no part.
  size_t at;
  if (body.starts_with(std::string_view(mark).substr(2))) at = mark.size() - 2;
  else if (const size_t found = body.find(mark); found != body.npos) at = found + mark.size();
  else fail("multipart: the body has no boundary");
  for (;;) {
    std::string_view rest = body.substr(at);
    if (rest.starts_with("--")) return parts;
    while (!rest.empty() && (rest.front() == ' ' || rest.front() == '\t')) rest.remove_prefix(1);
    SF_CHECK(rest.starts_with(kLine), "multipart: the body ends before its last boundary");
    rest.remove_prefix(kLine.size());
    SF_CHECK(parts.size() < kMostFormParts, "multipart: more than ", kMostFormParts, " parts");
    const std::string_view near = rest.substr(0, kMostPartHeader + 4);
    const size_t gap = near.find("\r\n\r\n");
    SF_CHECK(gap != near.npos, "multipart: a part's headers have no end within ", kMostPartHeader, " bytes");
    FormPart part = part_of(rest.substr(0, gap));
    rest.remove_prefix(gap + 2);  // the value may be empty: then the boundary's own line break is the gap's second
    const size_t end = rest.find(mark);
    SF_CHECK(end != rest.npos, "multipart: part '", printable(part.name), "' has no end");
    part.value = end < 2 ? rest.substr(0, 0) : rest.substr(2, end - 2);
    parts.push_back(std::move(part));
    at = size_t(rest.data() - body.data()) + end + mark.size();
  }
}

}  // namespace sf::server
