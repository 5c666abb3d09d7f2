// As cuDNN's documentation of the backend API orders it: tensors, ops, operation graph, engine heuristics, engine
// configurations, execution plan.
#include "scaffolding/backend/cuda/cudnn_graph.h"

#include <algorithm>

namespace sf::cuda::cudnn {

DataType data_type(DType t) {
  switch (t) {
    case kBFloat16: return DataType::BFloat16;
    case kFloat16: return DataType::Half;
    case kFloat64: return DataType::Double;
    case kBool: return DataType::Boolean;
    default: return DataType::Float;
  }
}

namespace {

size_t bytes_of(Type t) {
  switch (t) {
    case Type::Boolean:
    case Type::Char: return 1;
    case Type::Int64:
    case Type::Double: return 8;
    default: return 4;
  }
}

}  // namespace

Descriptor::Descriptor(Kind kind) : print_(kind == Kind::VariantPack ? 0 : 0xcbf29ce484222325) {
  check(api().create_descriptor(kind, &raw_), "create a descriptor");
}
// FNV-1a
void Descriptor::note(Attribute a, const void* bytes, size_t size) {
  print_ = (print_ ^ uint64_t(a)) * 0x100000001b3;
  for (size_t i = 0; i < size; ++i) print_ = (print_ ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3;
}
Descriptor::~Descriptor() {
  if (raw_) api().destroy_descriptor(raw_);
}
void Descriptor::set(Attribute a, Type type, int64_t count, const void* values) {
  Status s = api().set(raw_, a, type, count, values);
  if (s != kSuccess) check(s, ("set attribute " + std::to_string(int(a))).c_str());
  // addresses differ from process to process
  const bool is_address = type == Type::Handle || type == Type::Descriptor || type == Type::VoidPointer;
  if (print_ && !is_address) note(a, values, bytes_of(type) * size_t(count));
}
void Descriptor::set(Attribute a, const Descriptor& value) {
  set(a, Type::Descriptor, 1, &value.raw_);
  note(a, &value.print_, sizeof value.print_);
}
int64_t Descriptor::integer(Attribute a) const {
  int64_t value = 0, count = 0;
  check(api().get(raw_, a, Type::Int64, 1, &count, &value), "ask a descriptor");
  return value;
}

Id Graph::add(DataType type, const Dims& sizes, const Dims& strides, int64_t alignment, bool is_virtual,
              bool by_value) {
  Descriptor t(Kind::Tensor);
  Id id = Id(tensors_.size()) + 1;
  t.set(Attribute::TensorDataType, type);
  t.set(Attribute::TensorSizes, sizes);
  t.set(Attribute::TensorStrides, strides);
  t.set(Attribute::TensorId, id);
  t.set(Attribute::TensorAlignment, alignment);
  if (is_virtual) t.set(Attribute::TensorIsVirtual, true);
  if (by_value) t.set(Attribute::TensorIsByValue, true);
  t.finalize("tensor");
  tensors_.push_back(std::move(t));
  return id;
}
Id Graph::tensor(DataType type, const Dims& sizes, const Dims& strides, int64_t alignment) {
  return add(type, sizes, strides, alignment, false, false);
}
Id Graph::hidden(DataType type, const Dims& sizes, const Dims& strides) {
  return add(type, sizes, strides, 16, true, false);
}
Id Graph::number(float value, size_t dims) {
  Id id = add(DataType::Float, Dims(dims, 1), Dims(dims, 1), sizeof value, false, true);
  numbers_.emplace_back(id, value);
  return id;
}

void Graph::convolve(Convolution what, Id x, Id w, Id y, const Window& window) {
  Descriptor c(Kind::Convolution);
  int mode = kCrossCorrelation;
  c.set(Attribute::ConvolutionComputeType, DataType::Float);
  c.set(Attribute::ConvolutionMode, Type::ConvolutionMode, 1, &mode);
  c.set(Attribute::ConvolutionSpatialDims, int64_t(window.padding.size()));
  c.set(Attribute::ConvolutionPrePaddings, window.padding);
  c.set(Attribute::ConvolutionPostPaddings, window.padding);
  c.set(Attribute::ConvolutionStrides, window.stride);
  c.set(Attribute::ConvolutionDilations, window.dilation);
  c.finalize("convolution");
  using A = Attribute;
  struct Names {
    Kind kind;
    A x, w, y, convolution, alpha, beta;
  };
  static constexpr Names kNames[] = {
      {Kind::ConvolutionForward, A::ForwardX, A::ForwardW, A::ForwardY, A::ForwardConvolution, A::ForwardAlpha,
       A::ForwardBeta},
      {Kind::ConvolutionBackwardData, A::DataDx, A::DataW, A::DataDy, A::DataConvolution, A::DataAlpha, A::DataBeta},
      {Kind::ConvolutionBackwardFilter, A::FilterX, A::FilterDw, A::FilterDy, A::FilterConvolution, A::FilterAlpha,
       A::FilterBeta},
  };
  const Names& n = kNames[int(what)];
  Descriptor op(n.kind);
  op.set(n.x, at(x));
  op.set(n.w, at(w));
  op.set(n.y, at(y));
  op.set(n.convolution, c);
  op.set(n.alpha, 1.0f);
  op.set(n.beta, 0.0f);
  op.finalize("operation of a convolution");
  parts_.push_back(std::move(c));
  operations_.push_back(std::move(op));
}

void Graph::pointwise(Pointwise f, DataType precision, int64_t axis, Id y, Id x, Id b, Id t) {
  Descriptor p(Kind::Pointwise), op(Kind::OperationPointwise);
  p.set(Attribute::PointwiseMode, Type::PointwiseMode, 1, &f);
  p.set(Attribute::PointwiseMathPrecision, precision);
  if (axis >= 0) p.set(Attribute::PointwiseAxis, axis);
  p.finalize("pointwise function");
  op.set(Attribute::OperationPointwise, p);
  op.set(Attribute::OperationPointwiseX, at(x));
  if (b) op.set(Attribute::OperationPointwiseB, at(b));
  if (t) op.set(Attribute::OperationPointwiseT, at(t));
  op.set(Attribute::OperationPointwiseY, at(y));
  op.finalize("pointwise operation");
  parts_.push_back(std::move(p));
  operations_.push_back(std::move(op));
}
void Graph::pointwise(Pointwise f, Id y, Id x, Id b, Id t) { pointwise(f, DataType::Float, -1, y, x, b, t); }
void Graph::index(Id y, Id x, int64_t axis) { pointwise(Pointwise::Index, DataType::Float, axis, y, x, 0, 0); }
void Graph::compare(Pointwise f, Id y, Id a, Id b) { pointwise(f, DataType::Boolean, -1, y, a, b, 0); }

void Graph::reduce(ReduceOp f, Id y, Id x) {
  Descriptor r(Kind::Reduction), op(Kind::OperationReduction);
  r.set(Attribute::ReductionComputeType, DataType::Float);
  r.set(Attribute::ReductionOperator, Type::Reduction, 1, &f);
  r.finalize("reduction");
  op.set(Attribute::OperationReductionX, at(x));
  op.set(Attribute::OperationReductionY, at(y));
  op.set(Attribute::OperationReduction, r);
  op.finalize("operation of a reduction");
  parts_.push_back(std::move(r));
  operations_.push_back(std::move(op));
}

void Graph::matmul(Id c, Id a, Id b) {
  Descriptor m(Kind::Matmul), op(Kind::OperationMatmul);
  m.set(Attribute::MatmulComputeType, DataType::Float);
  m.finalize("matrix product");
  op.set(Attribute::OperationMatmulA, at(a));
  op.set(Attribute::OperationMatmulB, at(b));
  op.set(Attribute::OperationMatmulC, at(c));
  op.set(Attribute::OperationMatmul, m);
  op.finalize("operation of a matrix product");
  parts_.push_back(std::move(m));
  operations_.push_back(std::move(op));
}

void Graph::reshape(Id y, Id x) {
  Descriptor op(Kind::OperationReshape);
  op.set(Attribute::ReshapeX, at(x));
  op.set(Attribute::ReshapeY, at(y));
  op.finalize("reshape");
  operations_.push_back(std::move(op));
}

void Graph::finalize(const Target& target) {
  auto graph = std::make_unique<Descriptor>(Kind::OperationGraph);
  std::vector<RawDescriptor> raw;
  for (auto& op : operations_) raw.push_back(op.raw());
  if (target.handle) graph->set(Attribute::GraphHandle, Type::Handle, 1, &target.handle);
  graph->set(Attribute::GraphOperations, Type::Descriptor, int64_t(raw.size()), raw.data());
  graph->finalize("operation graph");
  graph_ = std::move(graph);
}

uint64_t Graph::print() const {
  uint64_t all = operations_.size();
  for (auto& op : operations_) all = (all ^ op.print()) * 0x100000001b3;
  return all;
}

namespace {

// One of the descriptors that an attribute holds, copied into a new one, as cuDNN hands them out.
Descriptor held(const Descriptor& of, Attribute a, Kind kind) {
  Descriptor d(kind);
  RawDescriptor raw = d.raw();
  int64_t count = 0;
  check(api().get(of.raw(), a, Type::Descriptor, 1, &count, &raw), "ask a descriptor");
  return d;
}

bool fulfils(const Descriptor& config, const Wishes& wishes) {
  Descriptor engine = held(config, Attribute::ConfigEngine, Kind::Engine);
  int notes[kNotes] = {};
  int64_t count = 0;
  check(api().get(engine.raw(), Attribute::EngineNumericalNotes, Type::NumericalNote, kNotes, &count, notes),
        "ask for numerical notes");
  for (int64_t i = 0; i < std::min<int64_t>(count, kNotes); ++i) {
    if (wishes.deterministic && notes[i] == int(Note::Nondeterministic)) return false;
    if (wishes.exact_float32 && (notes[i] == int(Note::TensorCore) || notes[i] == int(Note::DownConvertInputs)))
      return false;
  }
  return true;
}

constexpr int64_t kMostProposals = 64;

void propose(std::vector<Descriptor>& to, HeuristicMode mode, const Graph& graph, const Target& target,
             const Wishes& wishes) {
  Descriptor heuristics(Kind::EngineHeuristics);
  heuristics.set(Attribute::HeuristicsGraph, graph.descriptor());
  heuristics.set(Attribute::HeuristicsMode, Type::HeuristicMode, 1, &mode);
  if (target.properties) heuristics.set(Attribute::HeuristicsDeviceProperties, *target.properties);
  Status s = heuristics.try_finalize();
  if (is_unsupported(s)) return;
  check(s, "heuristics");
  std::vector<Descriptor> configs;
  std::vector<RawDescriptor> raw;
  for (int64_t i = 0; i < kMostProposals; ++i) raw.push_back(configs.emplace_back(Kind::EngineConfig).raw());
  int64_t count = 0;
  check(api().get(heuristics.raw(), Attribute::HeuristicsResults, Type::Descriptor, kMostProposals, &count, raw.data()),
        "heuristics' results");
  for (int64_t i = 0; i < std::min(count, kMostProposals); ++i)
    if (fulfils(configs[size_t(i)], wishes)) to.push_back(std::move(configs[size_t(i)]));
}

Descriptor config_of(const Graph& graph, const Target& target, const Choice& choice) {
  Descriptor engine(Kind::Engine), config(Kind::EngineConfig);
  engine.set(Attribute::EngineGraph, graph.descriptor());
  engine.set(Attribute::EngineIndex, choice.engine);
  if (target.properties) engine.set(Attribute::EngineDeviceProperties, *target.properties);
  engine.finalize("engine");
  std::vector<Descriptor> knobs;
  std::vector<RawDescriptor> raw;
  for (auto& [type, value] : choice.knobs) {
    Descriptor& knob = knobs.emplace_back(Kind::KnobChoice);
    knob.set(Attribute::KnobChoiceType, Type::KnobType, 1, &type);
    knob.set(Attribute::KnobChoiceValue, value);
    knob.finalize("knob");
    raw.push_back(knob.raw());
  }
  config.set(Attribute::ConfigEngine, engine);
  config.set(Attribute::ConfigKnobChoices, Type::Descriptor, int64_t(raw.size()), raw.data());
  config.finalize("engine configuration");
  return config;
}

}  // namespace

std::vector<Descriptor> proposals(const Graph& graph, const Target& target, const Wishes& wishes) {
  std::vector<Descriptor> all;
  propose(all, HeuristicMode::A, graph, target, wishes);
  propose(all, HeuristicMode::Fallback, graph, target, wishes);
  return all;
}

Plan::Plan(std::shared_ptr<const Graph> graph, const Target& target, Descriptor config)
    : graph_(std::move(graph)), config_(std::move(config)), plan_(Kind::ExecutionPlan) {
  finalize(target);
}
Plan::Plan(std::shared_ptr<const Graph> graph, const Target& target, const Choice& choice)
    : graph_(std::move(graph)), config_(config_of(*graph_, target, choice)), plan_(Kind::ExecutionPlan) {
  finalize(target);
}

Plan::Plan(std::shared_ptr<const Graph> graph, const Target& target, const std::string& text)
    : graph_(std::move(graph)), plan_(Kind::ExecutionPlan) {
  plan_.set(Attribute::PlanJson, Type::Char, int64_t(text.size()), text.data());
  finalize(target);
}

void Plan::finalize(const Target& target) {
  if (target.handle) plan_.set(Attribute::PlanHandle, Type::Handle, 1, &target.handle);
  if (target.properties) plan_.set(Attribute::PlanDeviceProperties, *target.properties);
  if (config_) plan_.set(Attribute::PlanEngineConfig, *config_);
  plan_.finalize("execution plan");
  workspace_ = size_t(plan_.integer(Attribute::PlanWorkspaceSize));
}

Choice Plan::choice() const {
  Choice c;
  c.engine = held(*config_, Attribute::ConfigEngine, Kind::Engine).integer(Attribute::EngineIndex);
  std::vector<Descriptor> knobs;
  std::vector<RawDescriptor> raw;
  for (int i = 0; i < kKnobs; ++i) raw.push_back(knobs.emplace_back(Kind::KnobChoice).raw());
  int64_t count = 0, one = 0;
  check(api().get(config_->raw(), Attribute::ConfigKnobChoices, Type::Descriptor, kKnobs, &count, raw.data()),
        "ask for knobs");
  for (int64_t i = 0; i < std::min<int64_t>(count, kKnobs); ++i) {
    int type = 0;
    check(api().get(raw[size_t(i)], Attribute::KnobChoiceType, Type::KnobType, 1, &one, &type), "ask a knob");
    c.knobs.emplace_back(type, knobs[size_t(i)].integer(Attribute::KnobChoiceValue));
  }
  return c;
}

std::string Plan::text() const {
  int64_t size = 0;
  if (api().get(plan_.raw(), Attribute::PlanJson, Type::Char, 0, &size, nullptr) != kSuccess || size <= 0) return {};
  std::string all(size_t(size), '\0');
  if (api().get(plan_.raw(), Attribute::PlanJson, Type::Char, size, &size, all.data()) != kSuccess) return {};
  all.resize(std::min(all.size(), size_t(size)));
  return all;
}

void Plan::run(Handle handle, std::span<const std::pair<Id, void*>> memory, void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<const void*> pointers;
  for (auto& [id, data] : memory) ids.push_back(id), pointers.push_back(data);
  for (auto& [id, value] : graph_->numbers()) ids.push_back(id), pointers.push_back(&value);
  Descriptor pack(Kind::VariantPack);
  pack.set(Attribute::VariantIds, ids);
  pack.set(Attribute::VariantPointers, Type::VoidPointer, int64_t(pointers.size()), pointers.data());
  pack.set(Attribute::VariantWorkspace, Type::VoidPointer, 1, &workspace);
  pack.finalize("variant pack");
  check(api().execute(handle, plan_.raw(), pack.raw()), "execute");
}

}  // namespace sf::cuda::cudnn
