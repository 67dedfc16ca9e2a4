// Matrix products: what cuBLAS needs beside the result.
#pragma once
#include "operators.h"

namespace vramcast {

// cuBLAS takes matrices that are dense along one of their two dimensions; others are copied first.
static bool needs_dense_copy(const at::Tensor& matrix) {
  if (matrix.dim() < 2) return false;
  const auto rows = matrix.size(-2), columns = matrix.size(-1), row_stride = matrix.stride(-2),
             column_stride = matrix.stride(-1);
  return !(column_stride == 1 && row_stride >= std::max<int64_t>(1, columns)) &&
         !(row_stride == 1 && column_stride >= std::max<int64_t>(1, rows)) &&
         !matrix.is_contiguous();
}

// A product of scaled numbers, or with a bias (one row, added by the kernel itself), goes through
// cuBLASLt. From torch 2.15 on so does one of a single row, and one with a matrix that is added in
// half precision.
static bool uses_lt(const Operator& info, c10::ArrayRef<c10::IValue> arguments) {
  if (!info.adds_bias) return info.scales;
  const auto& bias = arguments[0].toTensor();
  const auto& left = arguments[1].toTensor();
  const auto& right = arguments[2].toTensor();
  if (!c10::isFloatingType(right.scalar_type()) || right.size(0) < 2 || right.size(1) < 2)
    return false;
  const bool is_new = !recorder.keeps_gemm_workspaces, has_rows = left.size(0) > 1;
  if (bias.dim() == 2)
    return is_new && has_rows && c10::isReducedFloatingType(right.scalar_type()) &&
           bias.size(0) == left.size(0) && bias.size(1) == right.size(1) && bias.stride(1) == 1;
  return bias.dim() == 1 && bias.is_contiguous() && bias.size(0) == right.size(1) &&
         (is_new || has_rows) && arguments[3].toScalar().toDouble() == 1.0;
}

static void simulate_gemm(const Operator& info, c10::ArrayRef<c10::IValue> arguments) {
  std::vector<at::Tensor> copies;
  const size_t first = info.first_matrix;
  for (size_t i = first; i < first + 2 && i < arguments.size(); ++i) {
    if (!arguments[i].isTensor() || !needs_dense_copy(arguments[i].toTensor())) continue;
    const auto& matrix = arguments[i].toTensor();
    copies.push_back(
        new_tensor(matrix.sizes(), dense_strides(matrix.sizes()), matrix.dtype(), true));
  }
  recorder.take_gemm_workspace(uses_lt(info, arguments));
  while (!copies.empty()) copies.pop_back();
}

}  // namespace vramcast
