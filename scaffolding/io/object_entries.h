// Entries of an Object that is a dict.
#pragma once
#include "scaffolding/io/object.h"

namespace sf::io {

// Gives a string key of the dict this value: in its place, or at the end where the key is new.
// TypeError for what is no dict.
void set_entry(const Object& dict, std::string_view key, Object value);

}  // namespace sf::io
