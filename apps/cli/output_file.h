// Where commands write: checked before the work that it is for. Functions only.
#pragma once
#include <string>
#include <vector>

namespace sf::cli {

// The folder is made where it is absent. ValueError naming the option for a path that is a folder, a FIFO or a device,
// a name that is too long, or a folder that cannot be written to.
void check_output(const char* option, const std::string& path);
// The same for a suffix that is not listed (".png .jpg").
void check_output(const char* option, const std::string& path, const std::string& suffixes);
// ValueError for a name in braces that is not filled in; `known` are those that are ("seed").
void check_template(const char* option, const std::string& path, const std::vector<std::string>& known = {});
// The folder of a training run, which goes on in its own and mixes with nothing else. ValueError for a file, and for a
// folder that holds other things and no run.
void check_run_folder(const std::string& folder, bool holds_run);

}  // namespace sf::cli
