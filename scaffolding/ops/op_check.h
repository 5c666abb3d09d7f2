// The checks that op_test.h runs on each sample.
#pragma once
#include "scaffolding/ops/op_test.h"

namespace sf::test {

void check_meta(const OpEntry& op, const OpTest& t);
void check_gradients(const OpEntry& op, const OpTest& t);
void check_second_derivatives(const OpEntry& op, const OpTest& t);
void check_providers(const OpEntry& op, const OpTest& t);
void check_refusals(const OpEntry& op, const OpTest& t);

// ---- shared pieces
std::vector<Value> complete(const OpEntry& op, const Sample& s);   // with defaults filled in
Tensors outputs(const Value& v);                                   // the tensors of a result
// Applies f to every tensor argument (also inside lists), returning the new arguments.
std::vector<Value> map_tensors(const std::vector<Value>& args, const std::function<Tensor(const Tensor&)>& f);
Tensor to_dtype_keeping_layout(const Tensor& t, DType dtype);
// Cotangents: fixed numbers of the outputs' shapes, so that a scalar loss = sum(y * c) can be formed.
Tensors cotangents(const Tensors& ys);
// Values (floating outputs only) and gradients of the floating inputs, all as float64.
struct Evaluation { Tensors values, gradients; };
Evaluation evaluate(const OpEntry& op, const std::vector<Value>& args, bool want_gradients);

}  // namespace sf::test
