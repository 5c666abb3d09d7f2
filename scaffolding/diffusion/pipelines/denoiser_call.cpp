#include "scaffolding/diffusion/pipelines/denoiser_call.h"

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {
bool has_both_halves(ArgumentRole role) {
  return role == ArgumentRole::PerSample || role == ArgumentRole::Text || role == ArgumentRole::Channels ||
         role == ArgumentRole::Tokens;
}
bool joins_sample(ArgumentRole role) { return role == ArgumentRole::Channels || role == ArgumentRole::Tokens; }
}  // namespace

bool is_shared(ArgumentRole role) { return role == ArgumentRole::Shared || role == ArgumentRole::Setting; }

std::optional<ListEntry> list_entry(const std::string& name) {
  const size_t open = name.find('[');
  if (open == name.npos) return {};
  return ListEntry{name.substr(0, open), std::stoul(name.substr(open + 1))};
}

DenoiserCall::DenoiserCall() = default;
DenoiserCall::DenoiserCall(std::initializer_list<DenoiserArgument> arguments) : arguments_(arguments) {}

DenoiserCall::DenoiserCall(const DenoiserCall& o) = default;
DenoiserCall::DenoiserCall(DenoiserCall&& o) = default;
DenoiserCall& DenoiserCall::operator=(const DenoiserCall& o) = default;
DenoiserCall& DenoiserCall::operator=(DenoiserCall&& o) = default;
DenoiserCall::~DenoiserCall() = default;
void DenoiserCall::push_back(DenoiserArgument argument) { arguments_.push_back(std::move(argument)); }

Tensor& DenoiserCall::at(std::string_view name) {
  for (auto& a : arguments_)
    if (a.name == name) return a.tensor;
  fail<RuntimeError>("denoiser: the call has no argument '", name, "'");
}

Tensor& DenoiserCall::of(ArgumentRole role) {
  for (auto& a : arguments_)
    if (a.role == role) return a.tensor;
  fail<RuntimeError>("denoiser: the call has no argument of the role ", int(role));
}
const Tensor& DenoiserCall::of(ArgumentRole role) const { return const_cast<DenoiserCall*>(this)->of(role); }

DenoiserCall DenoiserCall::with(const Tensor& sample, const Tensor& timestep) const {
  DenoiserCall call;
  Tensor whole = sample;
  for (auto& a : arguments_)
    if (joins_sample(a.role)) {
      const bool third = a.role == ArgumentRole::Channels && (sample.ndim() == 5 || sample.ndim() == 3);
      whole = cat({whole, a.tensor}, third ? 2 : 1);
    }
  for (auto& a : arguments_) {
    if (joins_sample(a.role)) continue;
    call.push_back(a);
    if (a.role == ArgumentRole::Sample) call[call.size() - 1].tensor = whole;
    if (a.role == ArgumentRole::Timestep) call[call.size() - 1].tensor = timestep;
  }
  return call;
}

DenoiserCall DenoiserCall::half(int64_t which, int64_t batch) const {
  DenoiserCall call = *this;
  for (auto& a : call)
    if (a.tensor && has_both_halves(a.role)) a.tensor = a.tensor.narrow(0, which * batch, batch);
  return call;
}

void DenoiserCall::keep_samples(const Tensor& places, int64_t batch, bool guided) {
  const Tensor both = guided ? cat({places, places + batch}, 0) : places;
  for (auto& a : arguments_)
    if (a.tensor && has_both_halves(a.role)) a.tensor = index_select(a.tensor, 0, both.to(a.tensor.device()));
}

}  // namespace sf::diffusion
