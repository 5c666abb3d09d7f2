// Products of float8 matrices on CUDA through cuBLASLt, on GPUs from compute capability 8.9 on (cublasLtMatmul, "FP8
// kernels"): at least one operand of e4m3, both dense along k, k and n multiples of 16, a bias of the result's 16 bits
// (bfloat16 beside float32). Scales of rows and columns: 9.0 only.
#include "scaffolding/ops/quantize/scaled_product.h"
#include "scaffolding/backend/cuda/device.h"
#include "scaffolding/ops/matmul/cublaslt_product.h"

namespace sf::cuda {
namespace {

int capability(int device) {
  static int known[kMaxDevices] = {};
  if (known[device]) return known[device];
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "scaled_mm");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "scaled_mm");
  return known[device] = major * 10 + minor;
}

Product product_of(const ScaledProduct& p) {
  ProductEpilogue epilogue{p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT, p.bias, {}};
  ProductScales scales{p.scale_b.as<const float>(), p.scale_a.as<const float>(), p.scale_a && p.scale_a.numel() > 1};
  return {p.b.dtype,
          p.a.dtype,
          p.c.dtype,
          1,
          *columns_of(batch_of_one(p.b)),
          *columns_of(batch_of_one(p.a)),
          *columns_of(batch_of_one(p.c)),
          epilogue,
          false,
          p.c.device,
          scales,
          p.residual ? p.residual.data : nullptr,
          p.fast_accumulation && size_of(p.c.dtype) == 2};
}

}  // namespace

bool has_float8_product(const ScaledProduct& p) {
  int64_t m = p.c.sizes[0], n = p.c.sizes[1], k = p.a.sizes[1];
  if (p.a.dtype == kFloat8E5M2 && p.b.dtype == kFloat8E5M2) return false;
  if (k % 16 != 0 || n % 16 != 0 || p.b.strides[0] != 1 || p.b.strides[1] % 16 != 0 || p.a.strides[1] != 1 ||
      p.a.strides[0] % 16 != 0)
    return false;
  if (reinterpret_cast<uintptr_t>(p.a.data) % 16 != 0 || reinterpret_cast<uintptr_t>(p.b.data) % 16 != 0) return false;
  bool vectors = p.scale_a && (p.scale_a.numel() > 1 || p.scale_b.numel() > 1);
  if (vectors && (p.scale_a.numel() != m || p.scale_b.numel() != n || capability(p.c.device.index) != 90)) return false;
  return capability(p.c.device.index) >= 89 && product_of(p).exists();
}

bool run_float8_product(const ScaledProduct& p) { return product_of(p).run(1, p.residual ? 1 : 0); }

namespace {

void run(const ScaledProduct& p) {
  if (!run_float8_product(p)) scaled_product_in_passes(p);
}

SF_KERNEL(scaled_product, DeviceType::CUDA, "cublaslt", 10, run, has_float8_product)

}  // namespace
}  // namespace sf::cuda
