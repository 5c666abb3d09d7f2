// Tables that describe pictures: metadata.jsonl (one JSON object a line) and metadata.csv (RFC 4180, a header row), as
// Hugging Face's imagefolder has them. Functions only. What is malformed is a ValueError with file and line.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sf::data {

struct MetadataRow {
  std::string file_name;
  std::optional<std::string> caption;  // of the caption column
  std::string json;                    // the whole row
};
struct Metadata {
  std::vector<MetadataRow> rows;
  std::string caption_column;  // empty where there is none
};

// `caption_column`: empty takes the first of text, caption and prompt that the first row has. `name` stands in errors.
Metadata read_jsonl(std::string_view text, const std::string& name, const std::string& caption_column);
Metadata read_csv(std::string_view text, const std::string& name, const std::string& caption_column);

// The string under `key` of the JSON object `text`; `key` empty: as above.
// ValueError listing the keys where there is none.
std::string json_caption(std::string_view text, const std::string& name, std::string& key);

}  // namespace sf::data
