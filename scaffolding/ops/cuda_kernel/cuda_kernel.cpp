#include "scaffolding/ops/cuda_kernel/cuda_kernel.h"

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/accelerator.h"

namespace sf::cuda {

struct Kernel::State {
  KernelSource source;
  std::vector<KernelParameter> parameters;
  std::mutex mutex;
  std::map<int, KernelHandle> loaded;  // by device

  KernelHandle on(Device device) {
    Accelerator& gpu = accelerator(device);
    std::lock_guard lock(mutex);
    KernelHandle& handle = loaded[device.index];
    if (!handle) {
      auto image = compile_kernel(source, gpu.properties(device.index).architecture());
      handle = gpu.load_kernel(device.index, image->cubin.data(), image->entry.c_str());
    }
    return handle;
  }
};

namespace {

std::string describe(size_t i, const KernelParameter& p) {
  return "argument " + std::to_string(i) + " (" + p.type + (p.name.empty() ? "" : " " + p.name) + ")";
}

// An argument's value as the kernel reads it: at most 8 bytes.
struct Slot {
  alignas(8) char bytes[8] = {};
  template <class T> void set(T v) { std::memcpy(bytes, &v, sizeof v); }
};

void check_tensor(const std::string& name, size_t i, const KernelParameter& p, const Tensor& t) {
  SF_CHECK(t.defined(), "cuda: kernel '", name, "': ", describe(i, p), " needs a tensor, got none");
  SF_CHECK_AS(TypeError, !p.dtype || *p.dtype == t.dtype(), "cuda: kernel '", name, "': ", describe(i, p), " needs a ",
              *p.dtype, " tensor, got ", t.dtype(), t.shape());
  SF_CHECK(t.is_contiguous(), "cuda: kernel '", name, "': ", describe(i, p), " needs a contiguous tensor, got shape ",
           t.shape(), " with strides ", t.strides(), "; call contiguous() first");
}

void set_number(const std::string& name, size_t i, const KernelParameter& p, const KernelArgument& a, Slot& slot) {
  SF_CHECK_AS(TypeError, !std::holds_alternative<Tensor>(a), "cuda: kernel '", name, "': ", describe(i, p),
              " needs a number, got a tensor; pass item()");
  if (p.kind == KernelParameter::Real) {
    double v = std::holds_alternative<double>(a) ? std::get<double>(a)
               : std::holds_alternative<bool>(a) ? double(std::get<bool>(a))
                                                 : double(std::get<int64_t>(a));
    p.bytes == 4 ? slot.set(float(v)) : slot.set(v);
    return;
  }
  SF_CHECK_AS(TypeError, !std::holds_alternative<double>(a), "cuda: kernel '", name, "': ", describe(i, p),
              " needs an integer, got ", std::get<double>(a));
  int64_t v = std::holds_alternative<bool>(a) ? int64_t(std::get<bool>(a)) : std::get<int64_t>(a);
  const bool is_bool = p.dtype == kBool;
  int bits = 8 * p.bytes;
  int64_t high = is_bool ? 1 : bits == 64 ? INT64_MAX : (int64_t(1) << (p.is_signed ? bits - 1 : bits)) - 1;
  int64_t low = !p.is_signed ? 0 : -high - 1;
  SF_CHECK(v >= low && v <= high, "cuda: kernel '", name, "': ", describe(i, p), " must be in [", low, ", ", high,
           "], got ", v);
  std::memcpy(slot.bytes, &v, size_t(p.bytes));  // little-endian, as every host of an NVIDIA GPU
}

KernelLaunch checked(const std::string& name, const LaunchOptions& o) {
  KernelLaunch l;
  const int64_t most[] = {INT32_MAX, 65535, 65535};
  for (int d = 0; d < 3; ++d) {
    SF_CHECK(o.grid[size_t(d)] >= 1 && o.grid[size_t(d)] <= most[d], "cuda: kernel '", name, "': grid must be in [1, ",
             most[d], "] in dimension ", d, ", got ", o.grid[size_t(d)]);
    SF_CHECK(o.block[size_t(d)] >= 1 && o.block[size_t(d)] <= 1024, "cuda: kernel '", name,
             "': block must be in [1, 1024] in dimension ", d, ", got ", o.block[size_t(d)]);
    l.grid[d] = unsigned(o.grid[size_t(d)]);
    l.block[d] = unsigned(o.block[size_t(d)]);
  }
  int64_t threads = o.block[0] * o.block[1] * o.block[2];
  SF_CHECK(threads <= 1024, "cuda: kernel '", name, "': a block has at most 1024 threads, got ", threads);
  SF_CHECK(o.shared_memory >= 0 && o.shared_memory <= INT32_MAX, "cuda: kernel '", name,
           "': shared_memory must be a number of bytes, got ", o.shared_memory);
  l.shared_memory = unsigned(o.shared_memory);
  return l;
}

}  // namespace

Kernel::Kernel(std::string source, std::string name, std::vector<std::string> options,
               std::optional<std::vector<std::string>> parameters)
    : state_(std::make_shared<State>()) {
  if (parameters) {
    for (auto& p : *parameters) state_->parameters.push_back(parameter_of(name, p));
  } else {
    state_->parameters = parameters_of(source, name);
  }
  state_->source = {std::move(source), std::move(name), std::move(options)};
}

const std::string& Kernel::name() const { return state_->source.name; }
const std::vector<KernelParameter>& Kernel::parameters() const { return state_->parameters; }
std::shared_ptr<const KernelImage> Kernel::compile(const std::string& arch) const {
  return compile_kernel(state_->source, arch);
}
void Kernel::load(Device device) const { state_->on(device); }

void Kernel::launch(const LaunchOptions& options, const std::vector<KernelArgument>& arguments) const {
  const auto& parameters = state_->parameters;
  KernelLaunch l = checked(name(), options);
  SF_CHECK_AS(TypeError, arguments.size() == parameters.size(), "cuda: kernel '", name(), "' has ", parameters.size(),
              " parameters, got ", arguments.size(), " arguments");
  std::vector<Slot> slots(arguments.size());
  std::vector<void*> pointers;
  std::optional<Device> device;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const KernelParameter& p = parameters[i];
    pointers.push_back(slots[i].bytes);
    if (p.kind != KernelParameter::Pointer) {
      set_number(name(), i, p, arguments[i], slots[i]);
      continue;
    }
    const Tensor* t = std::get_if<Tensor>(&arguments[i]);
    SF_CHECK_AS(TypeError, t, "cuda: kernel '", name(), "': ", describe(i, p), " needs a tensor, got a number");
    check_tensor(name(), i, p, *t);
    SF_CHECK(!device || *device == t->device(), "cuda: kernel '", name(), "': tensors must be on one device, got ",
             *device, " and ", t->device());
    device = t->device();
    if (!p.is_const) autograd::check_inplace(("kernel '" + name() + "'").c_str(), *t);
    slots[i].set(t->data_ptr());
  }
  SF_CHECK(!device || device->is_cuda(), "cuda: kernel '", name(), "' needs tensors on a GPU, got ", *device,
           "; move them with .to('cuda')");
  Device on = device.value_or(Device(Device::CUDA));
  KernelHandle kernel = state_->on(on);
  accelerator(on).launch_kernel(on.index, kernel, l, pointers.data(), name().c_str());
  for (size_t i = 0; i < arguments.size(); ++i)
    if (parameters[i].kind == KernelParameter::Pointer && !parameters[i].is_const)
      autograd::bump_version(std::get<Tensor>(arguments[i]));
}

Kernel ensure_kernel(Device device, const std::string& name, const std::string& source) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, std::pair<std::string, Kernel>> kernels;
  accelerator(device);  // says why there is no GPU
  std::lock_guard lock(mutex);
  auto at = kernels.find({device.index, name});
  if (at == kernels.end()) {
    Kernel kernel(source, name);
    kernel.load(device);
    at = kernels.emplace(std::pair(device.index, name), std::pair(source, kernel)).first;
  }
  SF_CHECK(at->second.first == source, "cuda: ensure_kernel: '", name, "' is another kernel on ", device,
           " already; give each source a name of its own");
  return at->second.second;
}

}  // namespace sf::cuda
