// The part of cuDNN's graph interface that is used here, as cudnn_graph.h of version 9 declares it: that header need
// not be there, only the library at run time. Where the header is, cudnn_api.cudnn.cpp compares the numbers. Plain
// values and function types; nothing is linked.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace sf::cuda::cudnn {

using Handle = struct OpaqueHandle*;
using RawDescriptor = void*;
// 0, or a number by its thousands: 1 not started, 2 bad parameter, 3 not supported, 4 internal, 5 execution
using Status = int;

constexpr Status kSuccess = 0;
constexpr bool is_unsupported(Status s) { return s / 1000 == 3; }

enum class DataType : int { Float = 0, Double = 1, Half = 2, Int32 = 4, BFloat16 = 9, Boolean = 11 };

// Of an attribute's elements.
enum class Type : int {
  Handle = 0,
  DataType = 1,
  Boolean = 2,
  Int64 = 3,
  Float = 4,
  Double = 5,
  VoidPointer = 6,
  ConvolutionMode = 7,
  HeuristicMode = 8,
  KnobType = 9,
  NumericalNote = 11,
  PointwiseMode = 14,
  Descriptor = 15,
  Reduction = 18,
  Int32 = 23,
  Char = 24,
};

enum class Kind : int {
  Pointwise = 0,
  Convolution = 1,
  Engine = 2,
  EngineConfig = 3,
  EngineHeuristics = 4,
  ExecutionPlan = 5,
  KnobChoice = 7,
  ConvolutionForward = 10,
  ConvolutionBackwardFilter = 11,
  ConvolutionBackwardData = 12,
  OperationPointwise = 13,
  OperationGraph = 15,
  VariantPack = 16,
  Tensor = 17,
  Matmul = 18,
  OperationMatmul = 19,
  Reduction = 21,
  OperationReduction = 22,
  OperationReshape = 31,
  DeviceProperties = 38,  // since 9.8
};

enum class Attribute : int {
  PointwiseMode = 0,
  PointwiseMathPrecision = 1,
  PointwiseAxis = 9,
  ConvolutionComputeType = 100,
  ConvolutionMode = 101,
  ConvolutionDilations = 102,
  ConvolutionStrides = 103,
  ConvolutionPostPaddings = 104,
  ConvolutionPrePaddings = 105,
  ConvolutionSpatialDims = 106,
  HeuristicsMode = 200,
  HeuristicsGraph = 201,
  HeuristicsResults = 202,
  HeuristicsDeviceProperties = 204,
  ConfigEngine = 300,
  ConfigKnobChoices = 302,
  PlanHandle = 400,  // deprecated in 9.19, needed before
  PlanEngineConfig = 401,
  PlanWorkspaceSize = 402,
  PlanJson = 405,
  PlanDeviceProperties = 407,
  KnobChoiceType = 600,
  KnobChoiceValue = 601,
  ForwardAlpha = 700,
  ForwardBeta = 701,
  ForwardConvolution = 702,
  ForwardW = 703,
  ForwardX = 704,
  ForwardY = 705,
  DataAlpha = 706,
  DataBeta = 707,
  DataConvolution = 708,
  DataW = 709,
  DataDx = 710,
  DataDy = 711,
  FilterAlpha = 712,
  FilterBeta = 713,
  FilterConvolution = 714,
  FilterDw = 715,
  FilterX = 716,
  FilterDy = 717,
  OperationPointwise = 750,
  OperationPointwiseX = 751,
  OperationPointwiseB = 752,
  OperationPointwiseY = 753,
  OperationPointwiseT = 758,
  GraphHandle = 800,  // as PlanHandle
  GraphOperations = 801,
  TensorAlignment = 900,
  TensorDataType = 901,
  TensorSizes = 902,
  TensorStrides = 903,
  TensorId = 906,
  TensorIsVirtual = 907,
  TensorIsByValue = 908,
  VariantIds = 1000,
  VariantPointers = 1001,
  VariantWorkspace = 1003,
  EngineGraph = 1300,
  EngineIndex = 1301,
  EngineNumericalNotes = 1303,
  EngineDeviceProperties = 1307,
  MatmulComputeType = 1500,
  OperationMatmulA = 1520,
  OperationMatmulB = 1521,
  OperationMatmulC = 1522,
  OperationMatmul = 1523,
  ReductionOperator = 1600,
  ReductionComputeType = 1601,
  OperationReductionX = 1610,
  OperationReductionY = 1611,
  OperationReduction = 1612,
  ReshapeX = 2200,
  ReshapeY = 2201,
  PropertiesJson = 2702,
};

enum class Pointwise : int {
  Add = 0,
  Mul = 1,
  Div = 6,
  Sub = 9,
  Exp = 13,
  Log = 15,
  Identity = 21,
  Relu = 100,
  Gelu = 104,
  Swish = 106,
  GeluTanh = 107,
  CompareGreaterEqual = 303,
  Index = 501,   // of an element along an axis
  Select = 601,  // t ? x : b
};

enum class ReduceOp : int { Add = 0, Max = 3 };
enum class HeuristicMode : int { Fallback = 2, A = 3 };
enum class Note : int { TensorCore = 0, DownConvertInputs = 1, Nondeterministic = 4 };
constexpr int kNotes = 10;  // kinds of notes
constexpr int kKnobs = 64;  // more than there are
constexpr int kCrossCorrelation = 1;

struct Functions {
  size_t (*version)();  // 90100 is 9.1.0
  const char* (*error_string)(Status);
  void (*last_error)(char*, size_t);  // since 9.0: more than error_string says
  Status (*create)(Handle*);
  Status (*destroy)(Handle);
  Status (*set_stream)(Handle, cudaStream_t);
  Status (*create_descriptor)(Kind, RawDescriptor*);
  Status (*destroy_descriptor)(RawDescriptor);
  Status (*finalize)(RawDescriptor);
  Status (*set)(RawDescriptor, Attribute, Type, int64_t count, const void*);
  Status (*get)(RawDescriptor, Attribute, Type, int64_t wanted, int64_t* count, void*);
  Status (*execute)(Handle, RawDescriptor plan, RawDescriptor variant_pack);
};

}  // namespace sf::cuda::cudnn
