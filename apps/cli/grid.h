// --grid: a sheet of pictures over the values of one option, or of two.
#pragma once
#include "apps/cli/asked_options.h"

namespace sf::cli {

void add_grid_options(CLI::App& command, GenerationSettings& settings);

struct GridAxis {
  std::string option;  // "steps"
  std::vector<std::string> values;
};
// "steps=10,20,30", or "prompt=red cat|blue, sleepy cat": where there is a | it alone separates. ValueError for another
// form, for values that are there twice, and for an option that reader refuses.
GridAxis grid_axis(const std::string& text, const OptionReader& reader);

// A cell of it: what is asked for besides, and what stands below the picture. Of a prompt that is given the first value
// is replaced by the others (the web UI's prompt S/R): ValueError where it is not in there.
struct GridCell {
  std::vector<AskedOption> asked;
  std::string caption;
};
// Row by row: the first axis goes to the right, the second down. ValueError for more than two axes, one option twice,
// and more than 256 cells.
std::vector<GridCell> grid_cells(const std::vector<GridAxis>& axes, const GenerationSettings& base);

// As the web UI says what a sheet is of: "Script: X/Y/Z plot, X Type: steps, X Values: "10,20,30", ...".
std::string grid_text(const std::vector<GridAxis>& axes);
// uint8 [3, H, W], `columns` in a row with their captions; smaller pictures stand on white.
Tensor grid_sheet(const Tensors& pictures, const std::vector<std::string>& captions, int64_t columns);

}  // namespace sf::cli
