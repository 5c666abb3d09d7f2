// int_mm by one arithmetic. Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/int_mm/int8_operands.h"
#include "scaffolding/ops/int_mm/kernel.h"
#include "scaffolding/ops/matmul/few_rows.h"

namespace sf {
namespace SF_ISA {

template <class K> static void multiply_ints(const IntMm& g) {
  Int8Operands<K, Product<K, int8_t>> p{};
  p.m = g.c.sizes[0], p.n = g.c.sizes[1], p.k = g.a.sizes[1];
  p.a = g.a.as<const int8_t>(), p.a_m = g.a.strides[0], p.a_k = g.a.strides[1];
  p.b = g.b.as<const int8_t>(), p.b_k = g.b.strides[0], p.b_n = g.b.strides[1];
  p.e.c = g.c.data, p.e.c_row = g.c.sizes[1], p.e.c_type = kInt32, p.e.alpha = 1;
  p.e.bias = new_corrections<K>(p.n), p.e.bias_type = kInt32;
  multiply<K>(p);
}

}  // namespace SF_ISA
}  // namespace sf
