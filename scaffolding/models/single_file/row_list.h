// RowList: the rows of layers, under both names. Private to the files that list models.
#pragma once
#include "scaffolding/models/single_file/key_rows.h"

namespace sf::models {

struct RowList {
  KeyRows rows;

  void add(const std::string& name, const std::string& source, Shape shape, KeyChange change = KeyChange::Same, int part = 0) {
    rows.push_back({name, source, shape, change, part});
  }
  void affine(const std::string& name, const std::string& source, int64_t channels) {  // the weight and bias of a norm
    add(name + ".weight", source + ".weight", {channels});
    add(name + ".bias", source + ".bias", {channels});
  }
  void linear(const std::string& name, const std::string& source, int64_t out, int64_t in, bool bias = true) {
    add(name + ".weight", source + ".weight", {out, in});
    if (bias) add(name + ".bias", source + ".bias", {out});
  }
  void conv(const std::string& name, const std::string& source, int64_t out, int64_t in, int64_t kernel) {
    add(name + ".weight", source + ".weight", {out, in, kernel, kernel});
    add(name + ".bias", source + ".bias", {out});
  }
};

}  // namespace sf::models
