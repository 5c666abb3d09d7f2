#include "apps/cli/asked_options.h"

#include <algorithm>

#include "apps/cli/empty_values.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/nn/closest.h"

namespace sf::cli {

namespace {

// Of the whole run: what a picture alone cannot have.
constexpr std::string_view kOfTheRun[] = {
    "help",     "controlnet", "model", "vae",     "embedding", "dtype",     "device",  "profile", "max-vram", "max-ram",
    "lora-dir", "no-capture", "like",  "prompts", "grid",      "grid-only", "preview", "quiet",   "json",     "force"};

bool is_of_the_run(const std::string& name) {
  return std::find(std::begin(kOfTheRun), std::end(kOfTheRun), name) != std::end(kOfTheRun);
}

std::string long_name(const CLI::Option& o) { return o.get_lnames().empty() ? "" : o.get_lnames()[0]; }

}  // namespace

OptionReader::OptionReader(AddOptions add_options) { add_options(app_, settings_); }

std::string OptionReader::known_name(const std::string& where, const std::string& asked) const {
  std::string name = asked;
  name.erase(0, name.find_first_not_of('-') == name.npos ? name.size() : name.find_first_not_of('-'));
  const CLI::Option* found = nullptr;
  for (auto spelled : {name, std::string()}) {
    if (spelled.empty()) std::replace(name.begin(), name.end(), '_', '-'), spelled = name;
    if (!found && !spelled.empty()) found = app_.get_option_no_throw((spelled.size() == 1 ? "-" : "--") + spelled);
  }
  if (!found || long_name(*found).empty()) {
    std::vector<std::string> names;
    for (const CLI::Option* o : app_.get_options())
      if (const std::string known = long_name(*o); !known.empty() && !is_of_the_run(known)) names.push_back(known);
    fail(where, ": there is no option '", printable(asked), "'", nn::closest_hint(name, names));
  }
  const std::string known = long_name(*found);
  SF_CHECK(!is_of_the_run(known), where, ": --", known, " is of the whole run; give it on the command line");
  return known;
}

const CLI::Option& OptionReader::option(const std::string& known) const {
  return *app_.get_option_no_throw("--" + known);
}
bool OptionReader::is_flag(const std::string& known) const { return option(known).get_items_expected_max() == 0; }
bool OptionReader::takes_several(const std::string& known) const { return option(known).get_items_expected_max() > 1; }

GenerationSettings OptionReader::with(const GenerationSettings& base, const std::string& where,
                                      const std::vector<AskedOption>& asked) {
  std::vector<std::string> arguments;
  for (auto& o : asked) {
    const std::string name = "--" + known_name(where, o.name);
    if (o.values.empty()) arguments.push_back(name);
    for (auto& value : o.values) {
      // A value after "=" may begin with a dash; an empty one cannot stand there.
      if (value.empty()) arguments.insert(arguments.end(), {name, ""});
      else arguments.push_back(name + "=" + value);
    }
  }
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  settings_ = base;
  try {
    app_.parse(std::move(arguments));
    refuse_empty_options(app_);
  } catch (const CLI::ParseError& e) {
    std::string why = e.what();
    std::replace(why.begin(), why.end(), '\n', ' ');
    fail(where, ": ", why);
  }
  return settings_;
}

}  // namespace sf::cli
