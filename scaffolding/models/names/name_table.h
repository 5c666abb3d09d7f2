// NameTable: the tensors of one model and where each lies in files of a layout, resolved from NameRules and the model's
// own shapes. The same table reads, writes, tells what a file lacks, and names what adapters change (adapter_names.h).
// Const use is thread-safe.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string_view>

#include "scaffolding/core/tensor.h"
#include "scaffolding/models/names/name_index.h"
#include "scaffolding/models/names/name_rules.h"

namespace sf::io {
class Checkpoint;
}

namespace sf::models {

// Rows [row, row + rows) of one of our tensors are rows [source_row, source_row + rows) of a source, laid out as ours.
// A number without dimensions is a row.
struct NamePiece {
  size_t tensor, source;  // places in tensors() and sources()
  int64_t row, source_row, rows;
};

struct PieceRange {  // of one tensor's pieces, or one source's, in the order of its rows: NameTable::pieces()
  size_t first = 0, count = 0;
};

struct NamedTensor {
  std::string name;
  Shape shape;
  PieceRange pieces;
};

// A tensor of their file.
struct NameSource {
  std::string name;
  Shape shape;  // in the file
  NameChange change;
  Shape ours;  // the same values laid out as ours
  PieceRange pieces;
  bool fits(const Shape& s) const;
};

class NameTable {
 public:
  // who: "UNet2DConditionModel as 'ldm'", for errors. NotSupported for a tensor that no rule names; ValueError for
  // rules that contradict each other or the shapes: rows of a source that two tensors claim, or none; parts of
  // different width; halves of an odd number.
  NameTable(TensorList model, const NameRules& rules, std::string who);

  const std::string& who() const { return who_; }
  const std::vector<NamedTensor>& tensors() const { return tensors_; }  // in the order of the model
  const std::vector<NameSource>& sources() const { return sources_; }
  std::span<const NamePiece> pieces(const NamedTensor& t) const {
    return {of_tensors_.data() + t.pieces.first, t.pieces.count};
  }
  std::span<const NamePiece> pieces(const NameSource& s) const {
    return {of_sources_.data() + s.pieces.first, s.pieces.count};
  }
  const NamedTensor* find(std::string_view name) const;  // of ours; null without one
  const NameSource& first_source(const NamedTensor& t) const { return sources_[pieces(t)[0].source]; }

  // Other names for the sources: with a prefix, or as a program calls their averages.
  void rename_sources(const std::function<std::string(const std::string&)>& name);

  struct Differences {
    std::vector<std::string> missing;  // sources that the file lacks
    std::vector<std::string> wrong;    // "'out.2.bias' is [5] and should be [4]"
  };
  Differences differences(const io::Checkpoint& file) const;

  // A tensor of ours from theirs, which may be borrowed: a view of them where one is enough.
  Tensor read(const NamedTensor& t, const std::function<Tensor(const std::string& source)>& get) const;
  // All of theirs from ours. `what`: "the unet", for errors. ValueError for a tensor that is not there or has another
  // shape.
  std::map<std::string, Tensor> write(const std::map<std::string, Tensor>& ours, const std::string& what) const;

 private:
  std::string who_;
  std::vector<NamedTensor> tensors_;
  std::vector<NameSource> sources_;
  std::vector<NamePiece> of_tensors_, of_sources_;  // the same pieces, one tensor's or one source's together
  NameIndex by_name_;                               // of tensors_
};

// Of a model of this class, which may be on Device::Meta. ValueError for a layout that the class does not have.
NameTable name_table(nn::Module& model, const std::string& class_name, const std::string& layout);

}  // namespace sf::models
