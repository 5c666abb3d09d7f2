// A stand-in for libcudnn.so.9: the descriptors of its graph interface, checked as its documentation says (types,
// counts, order of calls, shapes), engines with notes and knobs, and plans that compute any graph of convolutions,
// pointwise functions, reductions, matrix products and reshapes one op after another.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cudnn_values.h"

extern "C" void sf_cuda_emulator_queue(cudaStream_t stream, void (*work)(void*), void* argument, void (*drop)(void*));
extern "C" int sf_cuda_emulator_unsafe_call();
extern "C" void sf_cuda_emulator_finish();
extern "C" void sf_cuda_emulator_fail_kernel();

namespace cudnn_emulator {

thread_local std::string last_error;

Status refuse(Status s, const std::string& why) {
  last_error = why;
  return s;
}

namespace {

struct Rule {
  Kind kind;
  Attribute attribute;
  Type type;
  int64_t least, most;
  bool needed;
  Kind of = Kind::Tensor;  // where the type is a descriptor
};
using A = Attribute;
const Rule kRules[] = {
    {Kind::Tensor, A::TensorDataType, Type::DataType, 1, 1, true},
    {Kind::Tensor, A::TensorSizes, Type::Int64, 1, 8, true},
    {Kind::Tensor, A::TensorStrides, Type::Int64, 1, 8, true},
    {Kind::Tensor, A::TensorId, Type::Int64, 1, 1, true},
    {Kind::Tensor, A::TensorAlignment, Type::Int64, 1, 1, true},
    {Kind::Tensor, A::TensorIsVirtual, Type::Boolean, 1, 1, false},
    {Kind::Tensor, A::TensorIsByValue, Type::Boolean, 1, 1, false},
    {Kind::Pointwise, A::PointwiseMode, Type::PointwiseMode, 1, 1, true},
    {Kind::Pointwise, A::PointwiseMathPrecision, Type::DataType, 1, 1, true},
    {Kind::Pointwise, A::PointwiseAxis, Type::Int64, 1, 1, false},
    {Kind::OperationPointwise, A::OperationPointwise, Type::Descriptor, 1, 1, true, Kind::Pointwise},
    {Kind::OperationPointwise, A::OperationPointwiseX, Type::Descriptor, 1, 1, true},
    {Kind::OperationPointwise, A::OperationPointwiseB, Type::Descriptor, 1, 1, false},
    {Kind::OperationPointwise, A::OperationPointwiseT, Type::Descriptor, 1, 1, false},
    {Kind::OperationPointwise, A::OperationPointwiseY, Type::Descriptor, 1, 1, true},
    {Kind::Convolution, A::ConvolutionComputeType, Type::DataType, 1, 1, true},
    {Kind::Convolution, A::ConvolutionMode, Type::ConvolutionMode, 1, 1, true},
    {Kind::Convolution, A::ConvolutionSpatialDims, Type::Int64, 1, 1, true},
    {Kind::Convolution, A::ConvolutionPrePaddings, Type::Int64, 1, 6, true},
    {Kind::Convolution, A::ConvolutionPostPaddings, Type::Int64, 1, 6, true},
    {Kind::Convolution, A::ConvolutionStrides, Type::Int64, 1, 6, true},
    {Kind::Convolution, A::ConvolutionDilations, Type::Int64, 1, 6, true},
    {Kind::ConvolutionForward, A::ForwardX, Type::Descriptor, 1, 1, true},
    {Kind::ConvolutionForward, A::ForwardW, Type::Descriptor, 1, 1, true},
    {Kind::ConvolutionForward, A::ForwardY, Type::Descriptor, 1, 1, true},
    {Kind::ConvolutionForward, A::ForwardConvolution, Type::Descriptor, 1, 1, true, Kind::Convolution},
    {Kind::ConvolutionForward, A::ForwardAlpha, Type::Float, 1, 1, true},
    {Kind::ConvolutionForward, A::ForwardBeta, Type::Float, 1, 1, true},
    {Kind::ConvolutionBackwardData, A::DataDx, Type::Descriptor, 1, 1, true},
    {Kind::ConvolutionBackwardData, A::DataW, Type::Descriptor, 1, 1, true},
    {Kind::ConvolutionBackwardData, A::DataDy, Type::Descriptor, 1, 1, true},
    {Kind::ConvolutionBackwardData, A::DataConvolution, Type::Descriptor, 1, 1, true, Kind::Convolution},
    {Kind::ConvolutionBackwardData, A::DataAlpha, Type::Float, 1, 1, true},
    {Kind::ConvolutionBackwardData, A::DataBeta, Type::Float, 1, 1, true},
    {Kind::ConvolutionBackwardFilter, A::FilterX, Type::Descriptor, 1, 1, true},
    {Kind::ConvolutionBackwardFilter, A::FilterDw, Type::Descriptor, 1, 1, true},
    {Kind::ConvolutionBackwardFilter, A::FilterDy, Type::Descriptor, 1, 1, true},
    {Kind::ConvolutionBackwardFilter, A::FilterConvolution, Type::Descriptor, 1, 1, true, Kind::Convolution},
    {Kind::ConvolutionBackwardFilter, A::FilterAlpha, Type::Float, 1, 1, true},
    {Kind::ConvolutionBackwardFilter, A::FilterBeta, Type::Float, 1, 1, true},
    {Kind::Matmul, A::MatmulComputeType, Type::DataType, 1, 1, true},
    {Kind::OperationMatmul, A::OperationMatmulA, Type::Descriptor, 1, 1, true},
    {Kind::OperationMatmul, A::OperationMatmulB, Type::Descriptor, 1, 1, true},
    {Kind::OperationMatmul, A::OperationMatmulC, Type::Descriptor, 1, 1, true},
    {Kind::OperationMatmul, A::OperationMatmul, Type::Descriptor, 1, 1, true, Kind::Matmul},
    {Kind::Reduction, A::ReductionComputeType, Type::DataType, 1, 1, true},
    {Kind::Reduction, A::ReductionOperator, Type::Reduction, 1, 1, true},
    {Kind::OperationReduction, A::OperationReductionX, Type::Descriptor, 1, 1, true},
    {Kind::OperationReduction, A::OperationReductionY, Type::Descriptor, 1, 1, true},
    {Kind::OperationReduction, A::OperationReduction, Type::Descriptor, 1, 1, true, Kind::Reduction},
    {Kind::OperationReshape, A::ReshapeX, Type::Descriptor, 1, 1, true},
    {Kind::OperationReshape, A::ReshapeY, Type::Descriptor, 1, 1, true},
    {Kind::OperationGraph, A::GraphHandle, Type::Handle, 1, 1, true},
    {Kind::OperationGraph, A::GraphOperations, Type::Descriptor, 1, 64, true},
    {Kind::EngineHeuristics, A::HeuristicsGraph, Type::Descriptor, 1, 1, true, Kind::OperationGraph},
    {Kind::EngineHeuristics, A::HeuristicsMode, Type::HeuristicMode, 1, 1, true},
    {Kind::Engine, A::EngineGraph, Type::Descriptor, 1, 1, true, Kind::OperationGraph},
    {Kind::Engine, A::EngineIndex, Type::Int64, 1, 1, true},
    {Kind::KnobChoice, A::KnobChoiceType, Type::KnobType, 1, 1, true},
    {Kind::KnobChoice, A::KnobChoiceValue, Type::Int64, 1, 1, true},
    {Kind::EngineConfig, A::ConfigEngine, Type::Descriptor, 1, 1, true, Kind::Engine},
    {Kind::EngineConfig, A::ConfigKnobChoices, Type::Descriptor, 0, 64, true, Kind::KnobChoice},
    {Kind::ExecutionPlan, A::PlanHandle, Type::Handle, 1, 1, true},
    {Kind::ExecutionPlan, A::PlanEngineConfig, Type::Descriptor, 1, 1, false, Kind::EngineConfig},
    {Kind::ExecutionPlan, A::PlanJson, Type::Char, 1, int64_t(1) << 30, false},
    {Kind::VariantPack, A::VariantIds, Type::Int64, 1, 64, true},
    {Kind::VariantPack, A::VariantPointers, Type::VoidPointer, 1, 64, true},
    {Kind::VariantPack, A::VariantWorkspace, Type::VoidPointer, 1, 1, true},
};

bool is_operation(Kind k) {
  switch (k) {
    case Kind::ConvolutionForward:
    case Kind::ConvolutionBackwardData:
    case Kind::ConvolutionBackwardFilter:
    case Kind::OperationPointwise:
    case Kind::OperationMatmul:
    case Kind::OperationReduction:
    case Kind::OperationReshape: return true;
    default: return false;
  }
}

const Rule* rule_of(Kind kind, Attribute a) {
  for (auto& r : kRules)
    if (r.kind == kind && r.attribute == a) return &r;
  return nullptr;
}

std::map<RawDescriptor, std::shared_ptr<Object>>& objects() {
  static auto& all = *new std::map<RawDescriptor, std::shared_ptr<Object>>;
  return all;
}
std::recursive_mutex& lock() {
  static std::recursive_mutex m;
  return m;
}
std::shared_ptr<Object> object_of(RawDescriptor d) {
  auto at = objects().find(d);
  return at == objects().end() ? nullptr : at->second;
}

// Engine 3 is proposed first and refuses to become a plan; 0 rounds float32 to TF32; 1 exists for filters, and adds in
// no fixed order; 2 is plain.
constexpr int64_t kEngines = 4;
constexpr int kKnob = 11;

bool is_filter(const Object& graph) {
  return graph.all(A::GraphOperations)[0]->kind == Kind::ConvolutionBackwardFilter;
}
std::vector<int> notes_of(const Object& engine) {
  switch (engine.integer(A::EngineIndex)) {
    case 0: return {int(Note::TensorCore)};
    case 1: return {int(Note::TensorCore), int(Note::Nondeterministic)};
    default: return {};
  }
}
int64_t workspace_of(const Object& plan) {
  return 256 + 256 * plan.one(A::PlanEngineConfig)->one(A::ConfigEngine)->integer(A::EngineIndex);
}

std::shared_ptr<Object> config(const std::shared_ptr<Object>& graph, int64_t index) {
  auto engine = std::make_shared<Object>(Kind::Engine), knob = std::make_shared<Object>(Kind::KnobChoice),
       c = std::make_shared<Object>(Kind::EngineConfig);
  engine->keep(A::EngineGraph, graph);
  engine->keep(A::EngineIndex, Type::Int64, 1, &index);
  int64_t value = index + 1;
  knob->keep(A::KnobChoiceType, Type::KnobType, 1, &kKnob);
  knob->keep(A::KnobChoiceValue, Type::Int64, 1, &value);
  c->keep(A::ConfigEngine, engine);
  c->keep(A::ConfigKnobChoices, knob);
  engine->finalized = knob->finalized = c->finalized = true;
  return c;
}

// cuDNN 9.19 on Hopper: bfloat16 in groups of an odd number of channels, with more behind it than a bias, ReLU and what
// comes with a bias.
bool lacks_engine(const Object& graph) {
  const auto operations = graph.all(A::GraphOperations);
  const Object& first = *operations[0];
  if (first.kind != Kind::ConvolutionForward || operations.size() == 1) return false;
  const Object& x = *first.one(A::ForwardX);
  const int64_t of_group = first.one(A::ForwardW)->integers(A::TensorSizes)[1];
  if (DataType(x.enumerator(A::TensorDataType)) != DataType::BFloat16 || of_group % 2 == 0 ||
      x.integers(A::TensorSizes)[1] == of_group)
    return false;
  bool has_bias = false;
  for (size_t i = 1; i < operations.size(); ++i) {
    const auto mode = Pointwise(operations[i]->one(A::OperationPointwise)->enumerator(A::PointwiseMode));
    if (mode != Pointwise::Add && mode != Pointwise::Relu) return true;
    if (mode == Pointwise::Add && operations[i]->one(A::OperationPointwiseB)->integers(A::TensorSizes)[0] == 1)
      has_bias = true;
  }
  return !has_bias;
}

std::vector<std::shared_ptr<Object>> proposals(const Object& heuristics) {
  auto graph = heuristics.one(A::HeuristicsGraph);
  std::vector<std::shared_ptr<Object>> all;
  if (lacks_engine(*graph)) return all;
  if (heuristics.enumerator(A::HeuristicsMode) == int(HeuristicMode::A)) {
    all.push_back(config(graph, 3));
    if (is_filter(*graph)) all.push_back(config(graph, 1));
    all.push_back(config(graph, 0));
  } else {
    all.push_back(config(graph, 2));
  }
  return all;
}

int64_t g_compiled = 0;  // plans that came of no text

Status finalize_plan(Object& plan) {
  if (plan.has(A::PlanEngineConfig) == plan.has(A::PlanJson))
    return refuse(kBadParameter, "a plan is made of a configuration or of a text");
  if (plan.has(A::PlanJson)) {
    auto config = config_of(std::string(static_cast<const char*>(plan.bytes(A::PlanJson)), plan.count(A::PlanJson)));
    if (!config) return refuse(kBadParameter, "a plan's text of another version, or changed");
    plan.keep(A::PlanEngineConfig, config);
    return kSuccess;
  }
  if (plan.one(A::PlanEngineConfig)->one(A::ConfigEngine)->integer(A::EngineIndex) == 3)
    return refuse(kNotSupportedSharedMemory, "shared memory");
  ++g_compiled;
  return kSuccess;
}

Status finalize(Object& o) {
  for (auto& r : kRules)
    if (r.kind == o.kind && r.needed && !o.has(r.attribute))
      return refuse(kBadParameter, "attribute " + std::to_string(int(r.attribute)) + " is not set");
  switch (o.kind) {
    case Kind::Engine:
      if (o.integer(A::EngineIndex) < 0 || o.integer(A::EngineIndex) >= kEngines)
        return refuse(kBadParameter, "no such engine");
      return kSuccess;
    case Kind::KnobChoice:
      return o.enumerator(A::KnobChoiceType) == kKnob ? kSuccess : refuse(kNotSupported, "no such knob");
    case Kind::ExecutionPlan: return finalize_plan(o);
    case Kind::VariantPack:
      return o.count(A::VariantIds) == o.count(A::VariantPointers)
                 ? kSuccess
                 : refuse(kBadParameter, "as many pointers as ids are needed");
    case Kind::OperationGraph: return check_graph(o);
    default: return check_shapes(o);
  }
}

// What a queued run needs, by value: descriptors may be gone when it comes.
struct Job {
  std::shared_ptr<Object> plan;
  std::map<int64_t, void*> memory;
  std::map<int64_t, float> numbers;
  void* workspace;
};
void run(void* argument) {
  Job* j = static_cast<Job*>(argument);
  if (j->plan->unloaded) {
    std::fprintf(stderr, "CUDA emulator: a plan of cuDNN was destroyed, and a graph's replay runs its kernels\n");
    return sf_cuda_emulator_fail_kernel();
  }
  // whoever still needs those bytes finds out
  if (j->workspace) std::memset(j->workspace, 0x5a, size_t(workspace_of(*j->plan)));
  auto engine = j->plan->one(A::PlanEngineConfig)->one(A::ConfigEngine);
  compute(*engine->one(A::EngineGraph), j->memory, j->numbers, engine->integer(A::EngineIndex) < 2);
}
void drop(void* argument) { delete static_cast<Job*>(argument); }

int64_t g_runs[kEngines] = {}, g_questions = 0;

struct EmulatedHandle {
  cudaStream_t stream = nullptr;
};

}  // namespace
}  // namespace cudnn_emulator

using namespace cudnn_emulator;
#define SF_EXPORT extern "C" __attribute__((visibility("default")))

SF_EXPORT size_t cudnnGetVersion() { return 91900; }
SF_EXPORT const char* cudnnGetErrorString(Status s) {
  return s == 0          ? "CUDNN_STATUS_SUCCESS"
         : s / 1000 == 2 ? "CUDNN_STATUS_BAD_PARAM"
         : s / 1000 == 3 ? "CUDNN_STATUS_NOT_SUPPORTED"
                         : "CUDNN_STATUS_EXECUTION_FAILED";
}
SF_EXPORT void cudnnGetLastErrorString(char* text, size_t size) {
  std::strncpy(text, last_error.c_str(), size - 1);
  text[size - 1] = 0;
}
// Any call may be the first one, which loads and allocates.
static Status loads() {
  return sf_cuda_emulator_unsafe_call() == 0 ? kSuccess
                                             : refuse(kExecutionFailed, "loading a kernel: the runtime refused");
}
SF_EXPORT Status cudnnCreate(EmulatedHandle** h) {
  if (Status s = loads(); s != kSuccess) return s;
  *h = new EmulatedHandle;
  return kSuccess;
}
SF_EXPORT Status cudnnDestroy(EmulatedHandle* h) {
  delete h;
  return kSuccess;
}
SF_EXPORT Status cudnnSetStream(EmulatedHandle* h, cudaStream_t stream) {
  if (!h) return refuse(kBadParameter, "no handle");
  h->stream = stream;
  return kSuccess;
}

SF_EXPORT Status cudnnBackendCreateDescriptor(Kind kind, RawDescriptor* d) {
  std::lock_guard guard(lock());
  auto o = std::make_shared<Object>(kind);
  *d = new char;  // a name of its own, whatever becomes of the object
  objects()[*d] = o;
  return kSuccess;
}
SF_EXPORT Status cudnnBackendDestroyDescriptor(RawDescriptor d) {
  std::lock_guard guard(lock());
  auto o = object_of(d);
  if (!objects().erase(d)) return refuse(kBadParameter, "no such descriptor");
  if (o->kind == Kind::ExecutionPlan) {  // its kernels go with it
    sf_cuda_emulator_finish();
    o->unloaded = true;
  }
  delete static_cast<char*>(d);
  return kSuccess;
}
SF_EXPORT Status cudnnBackendSetAttribute(RawDescriptor d, Attribute a, Type type, int64_t count, const void* values) {
  std::lock_guard guard(lock());
  auto o = object_of(d);
  if (!o || (!values && count > 0)) return refuse(kBadParameter, "null");
  const Rule* rule = rule_of(o->kind, a);
  if (!rule) return refuse(kBadParameter, "this descriptor has no such attribute");
  if (o->finalized) return refuse(kBadParameter, "finalized already");
  if (type != rule->type) return refuse(kBadAttributeType, "type of an attribute");
  if (count < rule->least || count > rule->most) return refuse(kBadParameter, "count of an attribute");
  if (type != Type::Descriptor) {
    o->keep(a, type, count, values);
    return kSuccess;
  }
  o->forget(a);
  for (int64_t i = 0; i < count; ++i) {
    auto part = object_of(static_cast<const RawDescriptor*>(values)[i]);
    if (!part || !part->finalized) return refuse(kNotFinalized, "a part is not finalized");
    bool fits = a == A::GraphOperations ? is_operation(part->kind) : part->kind == rule->of;
    if (!fits) return refuse(kBadParameter, "a part of another kind");
    o->keep(a, part);
  }
  return kSuccess;
}
SF_EXPORT Status cudnnBackendFinalize(RawDescriptor d) {
  std::lock_guard guard(lock());
  auto o = object_of(d);
  if (!o || o->finalized) return refuse(kBadParameter, "null, or finalized already");
  if (o->kind == Kind::ExecutionPlan)
    if (Status s = loads(); s != kSuccess) return s;
  Status s = finalize(*o);
  o->finalized = s == kSuccess;
  return s;
}

SF_EXPORT Status cudnnBackendGetAttribute(RawDescriptor d, Attribute a, Type type, int64_t wanted, int64_t* count,
                                          void* values) {
  std::lock_guard guard(lock());
  auto o = object_of(d);
  if (!o || !o->finalized) return refuse(kNotFinalized, "not finalized");
  if (type == Type::Descriptor) {
    g_questions += o->kind == Kind::EngineHeuristics;
    auto parts = o->kind == Kind::EngineHeuristics && a == A::HeuristicsResults ? proposals(*o) : o->all(a);
    *count = int64_t(parts.size());
    for (int64_t i = 0; i < wanted && i < *count; ++i) {
      auto at = objects().find(static_cast<RawDescriptor*>(values)[i]);
      if (at == objects().end() || at->second->kind != parts[size_t(i)]->kind)
        return refuse(kBadParameter, "a descriptor of that kind is needed for each result");
      at->second = parts[size_t(i)];
    }
    return kSuccess;
  }
  if (o->kind == Kind::Engine && a == A::EngineNumericalNotes) {
    auto notes = notes_of(*o);
    *count = int64_t(notes.size());
    std::memcpy(values, notes.data(), sizeof(int) * size_t(std::min(wanted, *count)));
    return kSuccess;
  }
  if (o->kind == Kind::ExecutionPlan && a == A::PlanWorkspaceSize) {
    *static_cast<int64_t*>(values) = workspace_of(*o);
    *count = 1;
    return kSuccess;
  }
  if (o->kind == Kind::ExecutionPlan && a == A::PlanJson) {
    auto config = o->one(A::PlanEngineConfig);
    if (config->one(A::ConfigEngine)->integer(A::EngineIndex) == 1)
      return refuse(kNotSupported, "this engine's plans are not written");
    const std::string text = text_of(config);
    *count = int64_t(text.size());
    if (values) std::memcpy(values, text.data(), size_t(std::min(wanted, *count)));
    return kSuccess;
  }
  if (!o->has(a) || o->type(a) != type) return refuse(kBadParameter, "no such attribute");
  *count = o->count(a);
  std::memcpy(values, o->bytes(a), bytes_of(type) * size_t(std::min(wanted, *count)));
  return kSuccess;
}

SF_EXPORT Status cudnnBackendExecute(EmulatedHandle* h, RawDescriptor plan_handle, RawDescriptor pack_handle) {
  std::lock_guard guard(lock());
  auto plan = object_of(plan_handle), pack = object_of(pack_handle);
  if (!h || !plan || !pack || plan->kind != Kind::ExecutionPlan || pack->kind != Kind::VariantPack ||
      !plan->finalized || !pack->finalized)
    return refuse(kNotFinalized, "execute needs a handle, a plan and a variant pack");
  if (Status s = loads(); s != kSuccess) return s;
  std::map<int64_t, void*> given;
  auto ids = pack->integers(A::VariantIds);
  auto pointers = static_cast<void* const*>(pack->bytes(A::VariantPointers));
  for (size_t i = 0; i < ids.size(); ++i)
    if (!given.emplace(ids[i], pointers[i]).second) return refuse(kBadParameter, "an id twice");
  auto job = std::make_unique<Job>();
  job->plan = plan;
  std::memcpy(&job->workspace, pack->bytes(A::VariantWorkspace), sizeof(void*));
  if (!job->workspace) return refuse(kBadParameter, "no workspace");
  std::set<int64_t> seen;
  for (auto& op : plan->one(A::PlanEngineConfig)->one(A::ConfigEngine)->one(A::EngineGraph)->all(A::GraphOperations))
    for (auto& t : op->tensors()) {
      int64_t id = t->integer(A::TensorId);
      if (t->flag(A::TensorIsVirtual) || !seen.insert(id).second) continue;
      auto at = given.find(id);
      if (at == given.end() || !at->second) return refuse(kBadParameter, "no memory for tensor " + std::to_string(id));
      if (t->flag(A::TensorIsByValue)) std::memcpy(&job->numbers[id], at->second, sizeof(float));
      else if (reinterpret_cast<uintptr_t>(at->second) % uintptr_t(t->integer(A::TensorAlignment)) != 0)
        return refuse(kMisaligned, "a pointer is not aligned");
      else job->memory[id] = at->second;
    }
  ++g_runs[plan->one(A::PlanEngineConfig)->one(A::ConfigEngine)->integer(A::EngineIndex)];
  if (seen.size() != given.size()) return refuse(kBadParameter, "memory for a tensor that the graph has not");
  sf_cuda_emulator_queue(h->stream, run, job.release(), drop);
  return kSuccess;
}

// For tests: how often an engine ran, how often heuristics were asked, and how many plans were compiled.
SF_EXPORT int64_t sf_cudnn_emulator_runs(int64_t engine) {
  return engine >= 0 && engine < kEngines ? g_runs[engine] : -1;
}
SF_EXPORT int64_t sf_cudnn_emulator_questions() { return g_questions; }
SF_EXPORT int64_t sf_cudnn_emulator_compiled() { return g_compiled; }
