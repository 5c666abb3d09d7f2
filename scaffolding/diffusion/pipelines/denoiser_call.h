// DenoiserCall: what a denoiser is called with, as named tensors. A name is the keyword of the forward that the model
// registered; the role says what guidance, graphs and the prompt's cache do with the tensor. A pipeline lists its
// arguments once for a run, and each step fills in the sample and the timestep.
#pragma once
#include <deque>
#include <initializer_list>
#include <optional>
#include <string>

#include "scaffolding/core/tensor.h"

namespace sf::diffusion {

enum class ArgumentRole : uint8_t {
  Sample,    // [B, ...]: the latents of this step; guidance doubles them
  Timestep,  // []: one for all samples
  // [B, c, ...]: goes to the denoiser beside the sample, as further channels of one tensor. Of clips, samples of five
  // dimensions, and of tokens, of three, they are the third: [B, T, c, ...], [B, N, c]
  Channels,
  Tokens,     // [B, n, C]: goes to the denoiser behind the sample's tokens, whose prediction alone is looked at
  PerSample,  // [B, ...]: what each sample is told; under guidance [2 B, ...], the negative ones first
  Text,       // the same, and what the denoiser makes of it is kept from step to step
  Shared,     // the same for all samples, whatever guidance does
  Setting,    // the same, of numbers that the host reads, where they stay: a flag [], a list of whole numbers [n]
};
// Whether all samples are told the same.
bool is_shared(ArgumentRole role);

struct DenoiserArgument {
  // "" is positional; "added_cond_kwargs.time_ids" is the entry of a dict in Python, and `time_ids` in C++;
  // "residuals[2]" is the third of a list of tensors, of which none is absent
  std::string name;
  Tensor tensor;  // absent: not given
  ArgumentRole role = ArgumentRole::PerSample;
};

struct ListEntry {
  std::string list;
  size_t index;
};
// "residuals[2]"; absent for a name that is none of these.
std::optional<ListEntry> list_entry(const std::string& name);

class DenoiserCall {
 public:
  DenoiserCall();
  DenoiserCall(std::initializer_list<DenoiserArgument> arguments);
  DenoiserCall(const DenoiserCall& o);
  DenoiserCall(DenoiserCall&& o);
  DenoiserCall& operator=(const DenoiserCall& o);
  DenoiserCall& operator=(DenoiserCall&& o);
  ~DenoiserCall();

  auto begin() { return arguments_.begin(); }
  auto end() { return arguments_.end(); }
  auto begin() const { return arguments_.begin(); }
  auto end() const { return arguments_.end(); }
  size_t size() const { return arguments_.size(); }
  DenoiserArgument& operator[](size_t i) { return arguments_[i]; }
  const DenoiserArgument& operator[](size_t i) const { return arguments_[i]; }
  void push_back(DenoiserArgument argument);

  Tensor& at(std::string_view name);  // RuntimeError where there is none of that name
  Tensor& of(ArgumentRole role);      // the first of that role; RuntimeError where there is none
  const Tensor& of(ArgumentRole role) const;
  // This call for `sample` at `timestep`, with Channels joined to the sample.
  DenoiserCall with(const Tensor& sample, const Tensor& timestep) const;
  // One half of a guided call's B samples: 0 for the negative one, 1 for the positive one.
  DenoiserCall half(int64_t which, int64_t batch) const;
  // Of the samples with these places in the batch of B; guided: all but the shared have 2 B.
  void keep_samples(const Tensor& places, int64_t batch, bool guided);

 private:
  std::deque<DenoiserArgument> arguments_;  // whose places stay as the list grows: callbacks hold tensors of it
};

}  // namespace sf::diffusion
