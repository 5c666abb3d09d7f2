// Config fields: the names and places of a config struct's members. One list serves reading config.json, writing it, the Python
// constructor's keywords and `.config`. A list points into the struct that made it and lives no longer than it.
#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "scaffolding/io/object.h"

namespace sf::diffusion {

// An optional, and an absent list (trained_betas), is null in JSON and None in Python.
using FieldPlace = std::variant<bool*, int64_t*, double*, std::string*, std::optional<double>*, std::optional<std::string>*,
                                std::optional<std::vector<double>>*, std::vector<int64_t>*>;
struct Field {
  const char* name;
  FieldPlace place;
};
using Fields = std::vector<Field>;

struct ConfigRest {
  io::Object unknown = io::Object::container(io::Object::Dict);  // entries of the dict that name no field
  std::vector<std::string> defaulted;                            // fields that the dict did not name
};

// Writes a dict's entries into the fields. TypeError for a value of another type, naming `who` and the field. Fields that the
// dict's "_use_default_values" names keep their defaults, as in diffusers.
ConfigRest read_fields(const char* who, const Fields& fields, const io::Object& dict);
io::Object write_fields(const Fields& fields);  // a Dict in the order of the list

// JSON text as a tree and back. ValueError naming `where` for text that is no JSON object. Infinity and NaN are read and
// written as Python's json module has them.
io::Object parse_config(std::string_view text, const std::string& where);
std::string format_config(const io::Object& dict);
io::Object read_config_file(const std::string& path);
void write_config_file(const io::Object& dict, const std::string& path);  // written beside and renamed

}  // namespace sf::diffusion
