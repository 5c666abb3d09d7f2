#include "scaffolding/core/dtype.h"

#include "scaffolding/core/error.h"

namespace sf {

std::string_view name(DType t) {
  static constexpr std::string_view names[kNumDTypes] = {"uint8", "int8",     "int16",         "int32",
                                                         "int64", "float16",  "float32",       "float64",
                                                         "bool",  "bfloat16", "float8_e4m3fn", "float8_e5m2"};
  return names[int(t)];
}

bool dtype_from_name(std::string_view text, DType& out) {
  if (text.starts_with("torch.")) text.remove_prefix(6);
  static constexpr std::pair<std::string_view, DType> aliases[] = {{"half", kFloat16},   {"float", kFloat32},
                                                                   {"double", kFloat64}, {"short", kInt16},
                                                                   {"int", kInt32},      {"long", kInt64}};
  for (auto& [alias, t] : aliases)
    if (text == alias) return out = t, true;
  for (int i = 0; i < kNumDTypes; ++i)
    if (text == name(DType(i))) return out = DType(i), true;
  return false;
}

// torch.promote_types. Rows and columns in the order u8 i8 i16 i32 i64 f16 f32 f64 bool bf16.
DType promote(DType a, DType b) {
  if (a == b) return a;
  SF_CHECK_AS(TypeError, !is_float8(a) && !is_float8(b), "promote: ", a, " and ", b,
              " do not mix; float8 is storage only, convert it first");
  constexpr DType u1 = kUInt8, i1 = kInt8, i2 = kInt16, i4 = kInt32, i8 = kInt64, f2 = kFloat16, f4 = kFloat32,
                  f8 = kFloat64, b1 = kBool, bf = kBFloat16;
  static constexpr DType table[10][10] = {
      {u1, i2, i2, i4, i8, f2, f4, f8, u1, bf}, {i2, i1, i2, i4, i8, f2, f4, f8, i1, bf},
      {i2, i2, i2, i4, i8, f2, f4, f8, i2, bf}, {i4, i4, i4, i4, i8, f2, f4, f8, i4, bf},
      {i8, i8, i8, i8, i8, f2, f4, f8, i8, bf}, {f2, f2, f2, f2, f2, f2, f4, f8, f2, f4},
      {f4, f4, f4, f4, f4, f4, f4, f8, f4, f4}, {f8, f8, f8, f8, f8, f8, f8, f8, f8, f8},
      {u1, i1, i2, i4, i8, f2, f4, f8, b1, bf}, {bf, bf, bf, bf, bf, f4, f4, f8, bf, bf},
  };
  return table[int(a)][int(b)];
}

static DType g_default = kFloat32;
DType default_dtype() { return g_default; }
void set_default_dtype(DType t) {
  SF_CHECK_AS(TypeError, is_floating(t) && !is_float8(t), "set_default_dtype: must be a floating dtype, got ", t);
  g_default = t;
}

}  // namespace sf
