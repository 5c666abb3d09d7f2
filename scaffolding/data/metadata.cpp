#include "scaffolding/data/metadata.h"

#include <nlohmann/json.hpp>

#include "scaffolding/core/error.h"
#include "scaffolding/core/utf8.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/json_error.h"

namespace sf::data {

namespace {

using json = nlohmann::json;

constexpr size_t kLineBytes = 16 << 20;
constexpr const char* kUsualColumns[] = {"text", "caption", "prompt"};

json parsed(std::string_view text, const std::string& where) {
  SF_CHECK(text.size() <= kLineBytes, where, ": has ", text.size(), " bytes, at most ", kLineBytes, " are read");
  try {
    // Depth: nothing here needs more than a list of lists; a million brackets would overflow readers further on.
    auto shallow = [&](int depth, json::parse_event_t, json&) {
      SF_CHECK(depth < 64, where, ": JSON nested deeper than 64");
      return true;
    };
    json row = json::parse(text.begin(), text.end(), shallow);
    SF_CHECK(row.is_object(), where, ": must be a JSON object, got ", row.type_name());
    return row;
  } catch (const json::exception& e) {
    fail(where, ": is no JSON: ", io::json_error(e));
  }
}

template <class Has> std::string column_of(const std::string& wanted, const Has& has) {
  if (!wanted.empty()) return wanted;
  for (auto* c : kUsualColumns)
    if (has(c)) return c;
  return "";
}

std::string list_of(const std::vector<std::string>& names) {
  std::string s;
  for (auto& n : names) s += (s.empty() ? "'" : ", '") + n + "'";
  return s.empty() ? "none" : s;
}
std::vector<std::string> keys_of(const json& row) {
  std::vector<std::string> keys;
  for (auto& [key, value] : row.items()) keys.push_back(key);
  return keys;
}

std::string string_under(const json& row, const std::string& key, const std::string& where) {
  auto found = row.find(key);
  if (found == row.end()) fail(where, ": has no column '", key, "'; there are ", list_of(keys_of(row)));
  if (found->is_null()) return "";
  SF_CHECK(found->is_string(), where, ": '", key, "' must be a string, got ", found->type_name());
  return found->get<std::string>();
}

}  // namespace

std::string json_caption(std::string_view text, const std::string& name, std::string& key) {
  json row = parsed(text, name);
  key = column_of(key, [&](const char* c) { return row.contains(c); });
  if (key.empty())
    fail(name, ": has none of 'text', 'caption' and 'prompt'; pass caption_column, one of ", list_of(keys_of(row)));
  return string_under(row, key, name);
}

Metadata read_jsonl(std::string_view text, const std::string& name, const std::string& caption_column) {
  Metadata m;
  int64_t number = 0;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    std::string where = name + " line " + std::to_string(number);
    json row = parsed(line, where);
    if (m.rows.empty()) m.caption_column = column_of(caption_column, [&](const char* c) { return row.contains(c); });
    MetadataRow r;
    SF_CHECK(row.contains("file_name"), where, ": has no column 'file_name'; there are ", list_of(keys_of(row)));
    r.file_name = string_under(row, "file_name", where);
    if (!m.caption_column.empty()) r.caption = string_under(row, m.caption_column, where);
    r.json = line;
    m.rows.push_back(std::move(r));
  }
  return m;
}

Metadata read_csv(std::string_view text, const std::string& name, const std::string& caption_column) {
  Metadata m;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  SF_CHECK(is_utf8(text), name, ": must be UTF-8");
  size_t at = 0;
  int64_t line = 1;
  auto next_row = [&](std::vector<std::string>& cells) {  // false at the end
    cells.clear();
    if (at >= text.size()) return false;
    int64_t first_line = line;
    for (std::string cell;;) {
      if (at < text.size() && text[at] == '"') {
        for (++at;; ++at) {
          SF_CHECK(at < text.size(), name, " line ", first_line, ": a quote is not closed");
          if (text[at] == '"' && (at + 1 >= text.size() || text[at + 1] != '"')) break;
          if (text[at] == '"') ++at;
          line += text[at] == '\n';
          cell += text[at];
        }
        ++at;
        SF_CHECK(at >= text.size() || text[at] == ',' || text[at] == '\n' || text[at] == '\r', name, " line ", line,
                 ": text behind a closing quote");
      } else {
        while (at < text.size() && text[at] != ',' && text[at] != '\n' && text[at] != '\r') cell += text[at++];
      }
      cells.push_back(std::move(cell));
      cell.clear();
      if (at < text.size() && text[at] == ',') {
        ++at;
        continue;
      }
      if (at < text.size() && text[at] == '\r') ++at;
      if (at < text.size() && text[at] == '\n') ++at;
      ++line;
      return true;
    }
  };
  std::vector<std::string> columns, cells;
  SF_CHECK(next_row(columns), name, ": is empty; its first row must name the columns");
  auto position = [&](const std::string& c) {
    return size_t(std::find(columns.begin(), columns.end(), c) - columns.begin());
  };
  auto has = [&](const std::string& c) { return position(c) < columns.size(); };
  SF_CHECK(has("file_name"), name, ": has no column 'file_name'; there are ", list_of(columns));
  m.caption_column = column_of(caption_column, has);
  SF_CHECK(m.caption_column.empty() || has(m.caption_column), name, ": has no column '", m.caption_column,
           "'; there are ", list_of(columns));
  for (int64_t row_line = line; next_row(cells); row_line = line) {
    if (cells.size() == 1 && cells[0].empty()) continue;
    SF_CHECK(cells.size() == columns.size(), name, " line ", row_line, ": has ", cells.size(), " cells, the header ",
             columns.size());
    json row = json::object();
    for (size_t i = 0; i < cells.size(); ++i) row[columns[i]] = cells[i];
    MetadataRow r{cells[position("file_name")], {}, io::json_text(row)};
    if (!m.caption_column.empty()) r.caption = cells[position(m.caption_column)];
    m.rows.push_back(std::move(r));
  }
  return m;
}

}  // namespace sf::data
