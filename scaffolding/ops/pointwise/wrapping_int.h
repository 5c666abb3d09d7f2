// Int<I>: integers that wrap around, as torch's do, with the operators and functions of the .def expressions.
// No include guard: row_math.h and CUDA each include it in a namespace of their own, with their own SF_INLINE.
template <class I> struct Int {
  I v;
  Int() = default;
  SF_INLINE Int(I x) : v(x) {}
  // From parameters and literals. Reals saturate, so that -inf and inf are the ends of the range.
  template <class N> SF_INLINE explicit Int(N n) {
    if constexpr (N(0.5) == N(0)) {
      v = I(n);
    } else {
      constexpr I low = I(-1) < I(0) ? I(uint64_t(1) << (sizeof(I) * 8 - 1)) : I(0), high = I(~low);
      v = n != n ? I(0) : n <= double(low) ? low : n >= double(high) ? high : I(n);
    }
  }
};

#define SF_INT_OP(op) \
  template <class I> SF_INLINE Int<I> operator op(Int<I> a, Int<I> b) { return I(uint64_t(a.v) op uint64_t(b.v)); }
SF_INT_OP(+)
SF_INT_OP(-)
SF_INT_OP(*)
#undef SF_INT_OP
#define SF_INT_COMPARE(op) \
  template <class I> SF_INLINE bool operator op(Int<I> a, Int<I> b) { return a.v op b.v; }
SF_INT_COMPARE(<)
SF_INT_COMPARE(<=)
SF_INT_COMPARE(>)
SF_INT_COMPARE(>=)
SF_INT_COMPARE(==)
SF_INT_COMPARE(!=)
#undef SF_INT_COMPARE
template <class I> SF_INLINE Int<I> operator-(Int<I> a) { return I(0 - uint64_t(a.v)); }
template <class I> SF_INLINE Int<I> abs(Int<I> a) { return a.v < I(0) ? -a : a; }
template <class I> SF_INLINE Int<I> sign(Int<I> a) { return I((a.v > I(0)) - (a.v < I(0))); }
template <class I> SF_INLINE Int<I> floor(Int<I> a) { return a; }
template <class I> SF_INLINE Int<I> ceil(Int<I> a) { return a; }
template <class I> SF_INLINE Int<I> round(Int<I> a) { return a; }
template <class I> SF_INLINE Int<I> trunc(Int<I> a) { return a; }
template <class I> SF_INLINE Int<I> maximum(Int<I> a, Int<I> b) { return a.v > b.v ? a : b; }
template <class I> SF_INLINE Int<I> minimum(Int<I> a, Int<I> b) { return a.v < b.v ? a : b; }
template <class I> SF_INLINE Int<I> select(bool m, Int<I> a, Int<I> b) { return m ? a : b; }
// Division by zero gives 0 here: the op refuses it beforehand.
template <class I> SF_INLINE Int<I> floor_divide(Int<I> a, Int<I> b) {
  if (b.v == I(0)) return I(0);
  if (I(-1) < I(0) && b.v == I(-1)) return -a;  // the one quotient that overflows
  I q = I(a.v / b.v);
  return I(a.v % b.v != 0 && (a.v < I(0)) != (b.v < I(0)) ? q - 1 : q);
}
template <class I> SF_INLINE Int<I> operator/(Int<I> a, Int<I> b) {  // towards zero
  if (b.v == I(0)) return I(0);
  if (I(-1) < I(0) && b.v == I(-1)) return -a;
  return I(a.v / b.v);
}
template <class I> SF_INLINE Int<I> remainder(Int<I> a, Int<I> b) {
  return b.v == I(0) ? Int<I>(I(0)) : a - floor_divide(a, b) * b;
}
template <class I> SF_INLINE Int<I> fmod(Int<I> a, Int<I> b) { return b.v == I(0) ? Int<I>(I(0)) : a - a / b * b; }
template <class I> SF_INLINE Int<I> pow(Int<I> a, Int<I> b) {
  if (b.v < I(0)) return I(a.v == I(1) ? 1 : a.v == I(-1) ? (b.v & 1 ? -1 : 1) : 0);
  Int<I> y{I(1)};
  for (auto e = uint64_t(b.v); e; e >>= 1) {
    if (e & 1) y = y * a;
    a = a * a;
  }
  return y;
}
