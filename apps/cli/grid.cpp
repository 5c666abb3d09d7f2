#include "apps/cli/grid.h"

#include <algorithm>

#include "apps/cli/contact_sheet.h"
#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::cli {

namespace {

constexpr size_t kCells = 256;

bool is_text(const std::string& option) { return option.find("prompt") != option.npos && option != "prompt-syntax"; }

// What the settings say of a prompt now; "" for another option, and for a prompt that was not given.
std::string given_text(const GenerationSettings& s, const std::string& option) {
  if (option == "prompt") return s.prompt;
  if (option == "negative-prompt") return s.negative_prompt;
  std::string field = option;
  std::replace(field.begin(), field.end(), '-', '_');
  const auto at = s.options.find(field);
  return at == s.options.end() ? "" : at->second;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

std::string value_in(const GridAxis& axis, const std::string& value, const GenerationSettings& base) {
  const std::string given = is_text(axis.option) ? given_text(base, axis.option) : "";
  return given.empty() ? value : replaced(given, axis.values[0], value);
}

}  // namespace

void add_grid_options(CLI::App& c, GenerationSettings& s) {
  c.add_option("--grid", s.grid,
               "A sheet over the values of an option, or of two: --grid \"steps=10,20\" --grid \"prompt=red cat|blue "
               "cat\"; of a prompt that is given the first value is replaced by the others")
      ->allow_extra_args(false);
  c.add_flag("--grid-only", s.grid_only, "The sheet, and not its pictures");
}

GridAxis grid_axis(const std::string& text, const OptionReader& reader) {
  const size_t equals = text.find('=');
  SF_CHECK(equals != text.npos && equals > 0, "--grid: must be option=value,value or option=value|value, got '", text,
           "'");
  GridAxis axis{reader.known_name("--grid", text.substr(0, equals)), {}};
  SF_CHECK(axis.option != "count" && axis.option != "batch" && axis.option != "output", "--grid: --", axis.option,
           " is of the whole sheet; give it on the command line");
  SF_CHECK(!reader.is_flag(axis.option) || axis.option == "tiling", "--grid: --", axis.option, " takes no values");
  const std::string values = text.substr(equals + 1);
  const char separator = values.find('|') == values.npos ? ',' : '|';
  for (size_t at = 0; at <= values.size();) {
    const size_t end = std::min(values.find(separator, at), values.size());
    std::string value = values.substr(at, end - at);
    if (!is_text(axis.option)) {  // "10, 20"
      value.erase(0, std::min(value.find_first_not_of(' '), value.size()));
      value.erase(value.find_last_not_of(' ') + 1);
    }
    SF_CHECK(std::find(axis.values.begin(), axis.values.end(), value) == axis.values.end(), "--grid: --", axis.option,
             " has the value '", value, "' twice");
    axis.values.push_back(std::move(value));
    at = end + 1;
  }
  return axis;
}

std::vector<GridCell> grid_cells(const std::vector<GridAxis>& axes, const GenerationSettings& base) {
  SF_CHECK(!axes.empty() && axes.size() <= 2, "--grid: takes one axis or two, got ", axes.size());
  SF_CHECK(axes.size() < 2 || axes[0].option != axes[1].option, "--grid: both axes are of --", axes[0].option);
  for (auto& axis : axes) {
    const std::string given = is_text(axis.option) ? given_text(base, axis.option) : "";
    SF_CHECK(given.empty() || (!axis.values[0].empty() && given.find(axis.values[0]) != given.npos), "--grid: --",
             axis.option, " '", given, "' has no '", axis.values[0],
             "', the first value, which the others take the place of");
  }
  const size_t columns = axes[0].values.size(), rows = axes.size() > 1 ? axes[1].values.size() : 1;
  SF_CHECK(columns <= kCells && rows <= kCells && columns * rows <= kCells, "--grid: ", columns, " times ", rows,
           " pictures are more than the ", kCells, " that a sheet has");
  std::vector<GridCell> out;
  for (size_t y = 0; y < rows; ++y)
    for (size_t x = 0; x < columns; ++x) {
      GridCell cell;
      for (size_t i = 0; i < axes.size(); ++i) {
        const GridAxis& axis = axes[i];
        const std::string& value = axis.values[i == 0 ? x : y];
        cell.asked.push_back({axis.option, {value_in(axis, value, base)}});
        cell.caption += (cell.caption.empty() ? "" : ", ") + axis.option + "=" + value;
      }
      out.push_back(std::move(cell));
    }
  return out;
}

std::string grid_text(const std::vector<GridAxis>& axes) {
  std::string out = "Script: X/Y/Z plot";
  for (size_t i = 0; i < axes.size(); ++i) {
    std::string values;
    for (auto& v : axes[i].values) values += (values.empty() ? "" : ",") + v;
    const std::string axis = i == 0 ? "X" : "Y";
    out +=
        ", " + axis + " Type: " + axes[i].option + ", " + axis + " Values: \"" + replaced(values, "\"", "\\\"") + "\"";
  }
  return out;
}

Tensor grid_sheet(const Tensors& pictures, const std::vector<std::string>& captions, int64_t columns) {
  int64_t height = 0, width = 0;
  for (auto& p : pictures) height = std::max(height, p.size(1)), width = std::max(width, p.size(2));
  std::vector<SheetPicture> cells;
  for (size_t i = 0; i < pictures.size(); ++i) {
    Tensor whole = pictures[i].contiguous();
    if (whole.size(1) != height || whole.size(2) != width)
      whole = pad(whole, {0, width - whole.size(2), 0, height - whole.size(1)}, "constant", 255);
    cells.push_back({whole, captions[i]});
  }
  return contact_sheet(cells, columns);
}

}  // namespace sf::cli
