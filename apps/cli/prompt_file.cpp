#include "apps/cli/prompt_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/core/utf8.h"
#include "scaffolding/io/config.h"
#include "scaffolding/io/file.h"

namespace sf::cli {

namespace fs = std::filesystem;
using io::Object;

namespace {

constexpr uint64_t kFileBytes = uint64_t(64) << 20, kLineBytes = uint64_t(1) << 20;
constexpr size_t kLines = 100000, kListed = 64;

std::string number_text(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// One value as it would stand on a command line.
std::string value_text(const std::string& where, const Object& value) {
  switch (value.kind()) {
    case Object::String: return value.text();
    case Object::Int: return std::to_string(value.as_int());
    case Object::Float: return number_text(value.as_float());
    case Object::Bool: return value.as_bool() ? "true" : "false";
    default: fail(where, " must be text, a number, true or false, or a list of them, got ", Object::name(value.kind()));
  }
}

AskedOption asked_option(const std::string& where, const std::string& field, const Object& value,
                         const OptionReader& reader, bool& on) {
  AskedOption out{reader.known_name(where, field), {}};
  const std::string what = where + ": '" + printable(field) + "'";
  on = true;
  if (reader.is_flag(out.name) && value.is(Object::Bool)) {
    on = value.as_bool();
  } else if (value.is_sequence()) {
    SF_CHECK(!value.items().empty() && value.items().size() <= kListed, what, " must have 1 to ", kListed,
             " values, got ", value.items().size());
    for (auto& item : value.items()) out.values.push_back(value_text(what, item));
    if (!reader.takes_several(out.name)) {  // "64,64"
      SF_CHECK(std::none_of(value.items().begin(), value.items().end(), [](auto& v) { return v.is(Object::String); }),
               what, " takes one text, got a list");
      std::string joined;
      for (auto& v : out.values) joined += (joined.empty() ? "" : ",") + v;
      out.values = {joined};
    }
  } else {
    out.values.push_back(value_text(what, value));
  }
  return out;
}

std::vector<AskedOption> fields_of(const std::string& where, std::string_view line, const OptionReader& reader) {
  const Object fields = io::parse_config(line, where);
  std::vector<AskedOption> out;
  for (size_t i = 0; i + 1 < fields.items().size(); i += 2) {
    bool on = true;
    AskedOption option = asked_option(where, fields.items()[i].text(), fields.items()[i + 1], reader, on);
    SF_CHECK(std::none_of(out.begin(), out.end(), [&](auto& o) { return o.name == option.name; }), where, ": --",
             option.name, " is there twice");
    if (on) out.push_back(std::move(option));
  }
  return out;
}

}  // namespace

void add_prompts_option(CLI::App& c, GenerationSettings& s) {
  c.add_option("--prompts", s.prompts,
               "A file with a prompt on each line, or .jsonl with options: {\"prompt\": \"a cat\", \"seed\": 7}");
}

std::vector<PromptLine> read_prompt_file(const std::string& path, const OptionReader& reader) {
  std::error_code error;
  SF_CHECK(fs::is_regular_file(path, error), "--prompts: there is no file '", path, "'");
  SF_CHECK(fs::file_size(path, error) <= kFileBytes, "--prompts: '", path, "' has more than ", kFileBytes >> 20,
           " MiB");
  const io::Bytes bytes = io::Bytes::read(path);
  std::string_view text(bytes.chars(), size_t(bytes.size));
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const bool is_json = fs::path(path).extension() == ".jsonl";
  const std::string name = fs::path(path).filename().string();
  std::vector<PromptLine> out;
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string where = name + ":" + std::to_string(number);
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    SF_CHECK(line.size() <= kLineBytes, where, ": has ", line.size(), " bytes, at most ", kLineBytes, " are read");
    SF_CHECK(is_utf8(line) && line.find('\0') == line.npos, where, ": is not UTF-8 text");
    while (!line.empty() && std::string_view(" \t\r").find(line.back()) != line.npos) line.remove_suffix(1);
    while (!line.empty() && std::string_view(" \t").find(line.front()) != line.npos) line.remove_prefix(1);
    if (line.empty() || (!is_json && line.front() == '#')) continue;
    SF_CHECK(out.size() < kLines, "--prompts: '", path, "' has more than ", kLines, " lines");
    if (is_json) out.push_back({where, fields_of(where, line, reader)});
    else out.push_back({where, {{"prompt", {std::string(line)}}}});
  }
  SF_CHECK(!out.empty(), "--prompts: there is none in '", path, "'");
  return out;
}

}  // namespace sf::cli
