// `scaffolding eval`, of pictures: prompts that put things together, and what different seeds make of one.
#include <iomanip>
#include <iostream>

#include "apps/cli/evaluation.h"

namespace sf::cli {

using nlohmann::ordered_json;

namespace {

ordered_json json_of(const train::CompositionFigures& f) {
  const auto share = [](int64_t count, double value) {
    return count > 0 ? ordered_json(rounded(value)) : ordered_json();
  };
  return {
      {"colours",
       {{"pictures", f.colours},
        {"right", share(f.colours, f.right_colour)},
        {"thing", share(f.colours, f.thing)},
        {"right_thing", share(f.colours, f.coloured_thing)}}},
      {"pairs", {{"pictures", f.pairs}, {"both", share(f.pairs, f.both_found)}, {"one", share(f.pairs, f.one_found)}}},
      {"counts", {{"pictures", f.counts}, {"all", share(f.counts, f.all_found)}}},
      {"seeds", {{"prompts", f.seeds}, {"distance", share(f.seeds, f.seed_distance)}}}};
}

}  // namespace

ordered_json composition_report(const std::shared_ptr<const data::ComposedIcons>& composed,
                                const std::vector<train::CompositionPrompt>& prompts, const Tensors& pictures,
                                uint64_t seed, const std::function<Tensor(const Tensor&)>& round_trip) {
  constexpr int64_t kOthers = 120;
  const train::CompositionJudge judge(composed);
  ordered_json report = json_of(judge.figures(prompts, pictures));
  ordered_json rows = ordered_json::array();
  for (auto& row : train::composition_check(judge, prompts, seed, round_trip)) {
    ordered_json f = json_of(row.figures);
    f["change"] = row.change;
    rows.push_back(std::move(f));
  }
  const auto named = train::named_colours_check(composed->icons());
  report["seeds"]["distance_of_other_icons"] = rounded(train::distance_of_others(judge, kOthers, seed));
  report["self_check"] = {{"rows", rows},
                          {"named_in_captions",
                           {{"pictures", named.pictures},
                            {"right", named.pictures > 0 ? ordered_json(rounded(named.right)) : ordered_json()}}}};
  ordered_json each = ordered_json::array();
  const auto judged = judge.judge(prompts, pictures);
  for (size_t i = 0; i < judged.size(); ++i) {
    if (prompts[i].set == "seeds") continue;
    ordered_json row{{"set", prompts[i].set}, {"prompt", prompts[i].prompt}};
    if (prompts[i].set == "colours") row.update({{"colour", judged[i].colour}, {"thing", judged[i].thing}});
    else row.update({{"found", judged[i].found}, {"of", judged[i].things}});
    each.push_back(std::move(row));
  }
  report["prompts"] = each;
  return report;
}

void print_compositions(const ordered_json& r) {
  const auto shown = [](const ordered_json& value, bool is_share) {
    if (value.is_null()) std::cout << std::setw(10) << "-";
    else if (is_share) std::cout << std::setw(10) << percent(value);
    else std::cout << std::setw(10) << value.get<double>();
  };
  const auto row = [&](const std::string& name, const ordered_json& f) {
    std::cout << "  " << std::left << std::setw(26) << name << std::right;
    shown(f["colours"]["right"], true);
    shown(f["colours"]["thing"], true);
    shown(f["pairs"]["both"], true);
    shown(f["pairs"]["one"], true);
    shown(f["counts"]["all"], true);
    shown(f["seeds"]["distance"], false);
    std::cout << "\n";
  };
  std::cout << "put together                    colour     thing      both       one     count     seeds\n";
  row("pictures", r);
  for (auto& f : r["self_check"]["rows"]) row(f["change"], f);
  std::cout << "colours as captions name them      ";
  shown(r["self_check"]["named_in_captions"]["right"], true);
  std::cout << "\ndistance of other icons            " << std::setw(10)
            << r["seeds"]["distance_of_other_icons"].get<double>() << "\n";
}

}  // namespace sf::cli
