// Trace: the pointwise ops that a function applies to stand-ins of its arguments (meta tensors),
// as a list that can be run again.
// The ops of this folder and casts add themselves; whatever else is applied to a stand-in is refused by name when its
// result is used.
#pragma once
#include <map>

#include "scaffolding/autograd/observer.h"
#include "scaffolding/ops/pointwise/pointwise_internal.h"

namespace sf::pointwise {

// What an op reads: a value of the trace, or a number.
struct TracedOperand {
  int value = -1;
  bool absent = false;  // the kernel takes p1 in its place
  double number = 0;    // with value < 0: what each element is
  int64_t integer = 0;  // the same for integers, exactly
};

struct TracedOp {
  enum Kind { Row, Where, Cast } kind = Row;
  const char* name = "";
  const PointwiseTable* table = nullptr;  // of Row
  TracedOperand in[3];                    // of Where: condition, input, other
  int count = 0;
  DType dtype = kFloat32;  // of the computation; of Cast: what is converted
  DType out = kFloat32;
  double p0 = 0, p1 = 0;
};

// Values 0, 1, ... are the arguments, the i-th op's result is value arguments + i.
// Ops that the result does not need are gone.
struct TracedProgram {
  int64_t id = 0;  // of its trace, in this process
  std::vector<DType> arguments;
  std::vector<TracedOp> ops;
  int result = 0;
  Shape shape, strides;  // of the result
  DType dtype_of(int value) const {
    return value < int(arguments.size()) ? arguments[size_t(value)] : ops[size_t(value) - arguments.size()].out;
  }
};

class Trace final : public autograd::Observer {
 public:
  explicit Trace(Device target) : target_(target) {}
  // Null unless the calling thread traces: asked by ops whose result is on the meta device.
  static Trace* current() { return static_cast<Trace*>(Observer::current()); }
  Device target() const { return target_; }  // where the list is to run: what numbers are rounded to depends on it

  void add_argument(const Tensor& stand_in);
  TracedProgram finish(const Tensor& result) &&;

  // op takes x, which no pointwise op made from the arguments
  [[noreturn]] void refuse(const char* op, const Tensor& x) const;
  void constant(const Tensor& t, const Scalar& value);  // t is a tensor that holds this number
  void unary(const char* op, const PointwiseTable& table, const Tensor& x, const Tensor& y, DType dtype, double p0 = 0,
             double p1 = 0);
  void binary(const char* op, const PointwiseTable& table, const Tensor& a, const Tensor& b, const Tensor& y,
              DType dtype, double p0, Precise precise);
  void lerp(const Tensor& start, const Tensor& end, const Tensor& weight, const Tensor& y, DType dtype);
  void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y, DType dtype);
  void cast(const Tensor& x, const Tensor& y);

  void recorded(const char* op, const Tensor& y) override;
  void written(const char* op) override;

 private:
  int value_of(const char* op, const Tensor& x) const;
  TracedOperand operand(const char* op, const Tensor& x, DType dtype);
  void add(TracedOp op, const Tensor& y);

  Device target_;
  TracedProgram program_;
  std::map<const TensorImpl*, int> values_;
  std::map<const TensorImpl*, Scalar> constants_;
  std::map<const TensorImpl*, const char*> others_;  // results of ops that are not pointwise
  Tensors kept_;                                     // so that no address comes twice
};

}  // namespace sf::pointwise
