// English about captioned icons: what a caption becomes when the thing has another colour, stands there several times
// or with another, and which captions that can be done to. Functions only; any thread.
#pragma once
#include <optional>
#include <string>

#include "scaffolding/data/icon_dataset.h"

namespace sf::data {

// "cat face" -> "cat faces", "glass of milk" -> "glasses of milk". Absent for what has no plural of that kind: names
// with a colon or a list, plurals ("grapes").
std::optional<std::string> plural(const std::string& caption);
// "two cat faces"; counts 2 to 4.
std::optional<std::string> counted(int64_t count, const std::string& caption);
// "red apple" in blue: "blue apple". Absent where the caption has a colour further on.
std::optional<std::string> coloured(const std::string& colour, const std::string& caption);
bool has_colour(const std::string& caption);  // whether a word of it is one
// Without what it can do without: "grinning face with big eyes" -> "grinning face", "red apple" -> "apple", "cat face"
// -> "cat". Itself where there is nothing of that kind.
std::string without_details(const Icon& icon);

// Whether it can be in one picture with another thing: few words, none of which joins, no person.
bool can_be_paired(const Icon& icon);
// Whether people would say that it has a colour: no person, no place, none that has another in its name.
bool can_be_coloured(const Icon& icon);
// Whether its mirror image is the same thing: nothing that is read or has a left and a right in its name.
bool can_be_flipped(const Icon& icon);

}  // namespace sf::data
