// The checks that op_test.h runs on each sample.
#pragma once
#include "scaffolding/ops/op_test.h"

namespace sf::test {

void check_meta(const OpEntry& op, const OpTest& t);
void check_gradients(const OpEntry& op, const OpTest& t);
void check_second_derivatives(const OpEntry& op, const OpTest& t);
void check_providers(const OpEntry& op, const OpTest& t);
void check_refusals(const OpEntry& op, const OpTest& t);
void check_golden(const OpEntry& op, const OpTest& t);  // op_golden_test.cpp
void check_device(const OpEntry& op, const OpTest& t);  // op_device_test.cpp
void check_captured(const OpEntry& op, OpTest& t);      // op_capture_test.cpp
void check_failed_allocations(const OpEntry& op, const OpTest& t);

// ---- shared pieces
std::vector<Value> complete(const OpEntry& op, const Sample& s);  // with defaults filled in
Tensors outputs(const Value& v);                                  // the tensors of a result
// Applies f to every tensor argument (also inside lists), returning the new arguments.
std::vector<Value> map_tensors(const std::vector<Value>& args, const std::function<Tensor(const Tensor&)>& f);
Tensor to_dtype_keeping_layout(const Tensor& t, DType dtype);
// Cotangents: fixed numbers of the outputs' shapes, so that a scalar loss = sum(y * c) can be formed.
Tensors cotangents(const Tensors& ys);
// Values (floating outputs only) and gradients of the floating inputs, all as float64; all: every output in its dtype.
struct Evaluation {
  Tensors values, gradients, all;
};
// The op on args; one that draws gets the same numbers at every call.
Value call_seeded(const OpEntry& op, const std::vector<Value>& args);
// "" for the default, then every provider of the op's kernels on the CPU.
std::vector<std::string> provider_labels(const OpEntry& op);
std::vector<Tensor> real_inputs(const std::vector<Value>& args);
Tensor leaf_of(const Tensor& t);  // a fresh leaf with t's values and layout
// sum over the floating outputs of sum(y * c), in float64 on the tape; empty when there is none.
Tensor weighted_sum(const Tensors& ys, const Tensors& cs);
Evaluation evaluate(const OpEntry& op, const std::vector<Value>& args, bool want_gradients);

// float16 to float64, not float8.
bool is_real(const Tensor& t);
std::string describe(const OpEntry& op, const std::vector<Value>& args);
// How far a result computed in dtype may be from the float64 one, relative to the result's norm: rounding of inputs and
// output, plus the growth of a sum of `length` terms.
double tolerance(DType dtype, double length);
double reduction_length(const std::vector<Value>& args, const Tensors& ys);
void expect_close(const Tensor& got, const Tensor& want, double tol, const std::string& what);

}  // namespace sf::test
