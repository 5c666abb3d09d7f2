#include "scaffolding/data/icon_phrases.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>

#include "scaffolding/data/colour_names.h"

namespace sf::data {

namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (char c : text + " ") {
    if (c != ' ' && c != '-') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(word);
      word.clear();
    }
  }
  return words;
}

bool has_any(const std::string& text, const std::set<std::string>& words) {
  const auto all = words_of(text);
  return std::any_of(all.begin(), all.end(), [&](auto& word) { return words.count(word) > 0; });
}

bool is_list(const std::string& caption) {
  return caption.find_first_of(":,()!0123456789") != std::string::npos || caption.find(" and ") != std::string::npos;
}

bool ends_with_any(const std::string& word, std::initializer_list<const char*> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](const char* end) { return word.ends_with(end); });
}

std::optional<std::string> plural_word(const std::string& word) {
  static const std::map<std::string, std::string> irregular{
      {"man", "men"},       {"woman", "women"},       {"person", "people"},   {"child", "children"},
      {"mouse", "mice"},    {"foot", "feet"},         {"tooth", "teeth"},     {"goose", "geese"},
      {"leaf", "leaves"},   {"knife", "knives"},      {"wolf", "wolves"},     {"loaf", "loaves"},
      {"fish", "fish"},     {"sheep", "sheep"},       {"deer", "deer"},       {"squid", "squid"},
      {"ox", "oxen"},       {"snowman", "snowmen"},   {"potato", "potatoes"}, {"tomato", "tomatoes"},
      {"mango", "mangoes"}, {"volcano", "volcanoes"}, {"elf", "elves"},       {"scarf", "scarves"}};
  if (auto it = irregular.find(word); it != irregular.end()) return it->second;
  if (word.size() < 2 || !std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::islower(c) != 0; }))
    return std::nullopt;
  if (word.ends_with("ing")) {  // "running" is none, "ring" is one
    static const std::set<std::string> things{"ring", "wing", "king", "string", "painting", "building"};
    if (things.count(word) == 0) return std::nullopt;
  }
  if (ends_with_any(word, {"us", "ss", "x", "z", "ch", "sh"})) return word + "es";
  if (word.ends_with("s") || ends_with_any(word, {"ned", "ted", "men"})) return std::nullopt;
  const char before = word[word.size() - 2];
  if (word.ends_with("y") && std::string("aeiou").find(before) == std::string::npos)
    return word.substr(0, word.size() - 1) + "ies";
  return word + "s";
}

// Where a caption's thing ends and what is said about it begins; its length where nothing is.
size_t end_of_thing(const std::string& caption) {
  size_t end = caption.size();
  for (const char* joint : {" with ", " of ", " in ", " on ", " at ", " over ", " without ", " behind ", " for "})
    end = std::min(end, caption.find(joint));
  return std::min(end, caption.size());
}

}  // namespace

std::optional<std::string> plural(const std::string& caption) {
  if (caption.empty() || is_list(caption)) return std::nullopt;
  const size_t end = end_of_thing(caption);
  const std::string thing = caption.substr(0, end);
  const size_t last = thing.rfind(' ') == std::string::npos ? 0 : thing.rfind(' ') + 1;
  const auto word = plural_word(thing.substr(last));
  if (!word) return std::nullopt;
  return thing.substr(0, last) + *word + caption.substr(end);
}

std::optional<std::string> counted(int64_t count, const std::string& caption) {
  static constexpr std::array<const char*, 3> kNumbers{"two", "three", "four"};
  if (count < 2 || count > 4) return std::nullopt;
  const auto things = plural(caption);
  if (!things) return std::nullopt;
  return std::string(kNumbers[size_t(count - 2)]) + " " + *things;
}

std::optional<std::string> coloured(const std::string& colour, const std::string& caption) {
  const size_t first = caption.find(' ');
  std::string thing = caption;
  if (first != std::string::npos && is_colour_word(caption.substr(0, first))) thing = caption.substr(first + 1);
  if (thing.empty() || has_colour(thing)) return std::nullopt;
  return colour + " " + thing;
}

bool has_colour(const std::string& caption) {
  const auto words = words_of(caption);
  return std::any_of(words.begin(), words.end(), is_colour_word);
}

std::string without_details(const Icon& icon) {
  std::string caption = icon.caption.substr(0, std::min(icon.caption.find(" with "), icon.caption.size()));
  const size_t first = caption.find(' ');
  if (first != std::string::npos && is_colour_word(caption.substr(0, first))) caption = caption.substr(first + 1);
  if (icon.group == "Animals & Nature" && caption.ends_with(" face")) caption.resize(caption.size() - 5);
  return caption;
}

bool can_be_paired(const Icon& icon) {
  const auto words = words_of(icon.caption);
  return icon.group != "People & Body" && !is_list(icon.caption) && !words.empty() && words.size() <= 3;
}

bool can_be_coloured(const Icon& icon) {
  static const std::set<std::string> places{"sunrise", "sunset",  "cityscape", "night",  "dusk",  "foggy", "park",
                                            "milky",   "rainbow", "desert",    "island", "map",   "beach", "fireworks",
                                            "globe",   "camping", "bridge",    "space",  "peace", "framed"};
  return icon.group != "People & Body" && icon.group != "Flags" && !is_list(icon.caption) &&
         !has_any(icon.caption, places) && coloured("red", icon.caption).has_value();
}

bool can_be_flipped(const Icon& icon) {
  static const std::set<std::string> read{
      "left",      "right",  "clock",    "watch",   "calendar", "globe",   "map",       "Japan",   "banknote",
      "newspaper", "ticket", "dollar",   "yen",     "euro",     "pound",   "money",     "writing", "input",
      "sign",      "symbol", "moon",     "quarter", "letter",   "letters", "button",    "keycap",  "crescent",
      "arrow",     "stop",   "joker",    "ATM",     "store",    "hundred", "music",     "musical", "note",
      "score",     "credit", "receipt",  "abacus",  "bank",     "hotel",   "hospital",  "office",  "book",
      "scroll",    "memo",   "document", "chart",   "keyboard", "timer",   "telephone", "compass", "Statue",
      "atom",      "oclock", "thirty",   "trophy",  "medal",    "mahjong"};
  return icon.group != "Symbols" && icon.group != "Flags" && icon.group != "People & Body" && !is_list(icon.caption) &&
         !has_any(icon.caption, read) && icon.caption.find('\'') == std::string::npos;
}

}  // namespace sf::data
