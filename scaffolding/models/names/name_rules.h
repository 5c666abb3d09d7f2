// NameRules: what the tensors of a model are called in another program's files, and how they are cut and laid out
// there. Rules say names alone; shapes are the model's own (name_table.h).
//
//   SF_NAMES(FluxTransformer2DModel, "bfl")
//       .rename("x_embedder", "img_in")
//       .join({"single_transformer_blocks.{i}.attn.to_q", "single_transformer_blocks.{i}.attn.to_k",
//              "single_transformer_blocks.{i}.attn.to_v", "single_transformer_blocks.{i}.proj_mlp"},
//             "single_blocks.{i}.linear1")
//       .swap_halves("norm_out.linear", "final_layer.adaLN_modulation.1");
//
// The first name is ours, the key of a module or of one tensor; what follows it in a tensor's key (".weight") follows
// theirs too. "{i}" is any number. Of several rules that fit a tensor the one that names most of it counts. Rules that
// fit none do no harm. The rules of a layout are registered before main() and constant after that.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "scaffolding/core/kernel.h"
#include "scaffolding/core/shape.h"

namespace sf::nn {
class Module;
}

namespace sf::models {

// The tensors of a model by name, with their shapes: all that its names in other files may depend on.
class TensorList {
 public:
  using Entry = std::pair<std::string, Shape>;
  explicit TensorList(nn::Module& model);  // those of its state dict, in that order; a model on Device::Meta will do
  explicit TensorList(std::vector<Entry> tensors);
  auto begin() const { return tensors_.begin(); }
  auto end() const { return tensors_.end(); }
  size_t size() const { return tensors_.size(); }
  std::vector<Entry> release() && { return std::move(tensors_); }
  bool has(const std::string& name) const;  // a tensor, or a module with tensors
  int64_t count(
      const std::string& list) const;  // modules of a list: 4 where "down_blocks.0..." to "down_blocks.3..." are
 private:
  std::vector<Entry> tensors_;
  std::vector<size_t> sorted_;  // places in tensors_, by name
};

// How a whole tensor of theirs lies. A tensor of fewer dimensions under the same rule, a bias, lies as ours.
enum class NameChange : uint8_t {
  Same,
  Pointwise,   // their convolution [O, I, 1, 1] is our linear layer [O, I]
  Flat,        // their linear layer [O, I * H * W] is our convolution [O, I, H, W]
  Transposed,  // [I, O] is [O, I]
  OneMore,     // their norm's weight [C] is one more than ours, which is a factor's distance from one
};

struct NameRule {
  enum Kind : uint8_t { Whole, Join, Split, Slice, SwapHalves, Reshape } kind = Whole;
  std::vector<std::string> ours, theirs;  // of Join several are ours, of Split theirs
  NameChange change = NameChange::Same;
  std::vector<int64_t> rows;  // Split: of each part, empty: equal parts; Slice: where each of equal parts begins
  Shape shape;                // Reshape: theirs
};

class NameRules {
 public:
  NameRules& rename(std::string ours, std::string theirs, NameChange change = NameChange::Same);
  NameRules& same(std::initializer_list<const char*> names);
  // The rows (of the first dimension) of ours, one after another, are theirs.
  NameRules& join(std::vector<std::string> ours, std::string theirs, NameChange change = NameChange::Same);
  NameRules& split(std::string ours, std::vector<std::string> theirs, std::vector<int64_t> rows = {});
  NameRules& slice(std::string ours, std::string theirs, int64_t first_row);  // ours is some rows of theirs
  // Ours, cut into equal parts, is rows of theirs that begin here and there.
  NameRules& slices(std::string ours, std::string theirs, std::vector<int64_t> first_rows);
  NameRules& swap_halves(std::string ours, std::string theirs);  // scale and shift are shift and scale
  NameRules& reshape(std::string ours, std::string theirs, Shape theirs_shape);
  // of a part whose name is `ours`
  NameRules& inside(const std::string& ours, const std::string& theirs, const NameRules& rules);
  // More rules, that depend on the model: numbers of blocks.
  NameRules& with(void (*more)(const TensorList& model, NameRules& rules));

  std::vector<NameRule> of(const TensorList& model) const;

 private:
  NameRules& add(NameRule rule);
  std::vector<NameRule> rules_;
  std::vector<void (*)(const TensorList&, NameRules&)> more_;
};

// Layouts are called after the programs that write them: "ldm", "open_clip". "own" is every model's:
// its names as they are.
const NameRules* find_layout(const std::string& class_name, const std::string& layout);  // null: there is none
std::vector<std::string> layouts_of(const std::string& class_name);                      // without "own"
std::vector<std::string> classes_with_layouts();

namespace detail {
NameRules& add_layout(const char* class_name, const char* layout);
}

#define SF_NAMES(Class, layout)                                                     \
  [[maybe_unused]] static ::sf::models::NameRules& SF_CAT(sf_names_, __COUNTER__) = \
      ::sf::models::detail::add_layout(#Class, layout)

}  // namespace sf::models
