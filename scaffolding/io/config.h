// Configs of schedulers and models, and their fields: the names and places of a config struct's members. One list
// serves reading config.json, writing it, the Python constructor's keywords and `.config`. A list points into the
// struct that made it and lives no longer than it.
#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "scaffolding/io/object.h"

namespace sf::io {

// An optional, and an absent list (trained_betas), is null in JSON and None in Python.
// An Object takes whatever is written: fields that are a number for all blocks or a list with one for each.
using FieldPlace =
    std::variant<bool*, int64_t*, double*, std::string*, std::optional<bool>*, std::optional<int64_t>*,
                 std::optional<double>*, std::optional<std::string>*, std::optional<std::vector<double>>*,
                 std::vector<int64_t>*, std::vector<std::string>*, Object*>;
struct Field {
  const char* name;
  FieldPlace place;
};
using Fields = std::vector<Field>;

struct ConfigRest {
  Object unknown = Object::container(Object::Dict);  // entries of the dict that name no field
  std::vector<std::string> defaulted;                // fields that the dict did not name
};

// Writes a dict's entries into the fields. TypeError for a value of another type, naming `who` and the field. Fields
// that the dict's "_use_default_values" names keep their defaults, as in diffusers.
ConfigRest read_fields(const char* who, const Fields& fields, const Object& dict);
// A field that may be one number (or bool) for all of n blocks, or a list of n.
// TypeError and ValueError naming `who` and the field.
std::vector<int64_t> ints_for_blocks(const char* who, const char* field, const Object& value, size_t n);
Object write_fields(const Fields& fields);  // a Dict in the order of the list

// All of an object's config: its fields, what a dict had besides, and "_use_default_values".
Object whole_config(const Fields& fields, const ConfigRest& rest);
// As it stands in a file: "_class_name" first, and no names of defaulted fields.
Object saved_config(const char* class_name, const Object& config);

// JSON text as a tree and back. ValueError naming `where` for text that is no JSON object. Infinity and NaN are read
// and written as Python's json module has them.
Object parse_config(std::string_view text, const std::string& where);
std::string format_config(const Object& dict);
Object read_config_file(const std::string& path);
void write_config_file(const Object& dict, const std::string& path);  // written beside and renamed

}  // namespace sf::io
