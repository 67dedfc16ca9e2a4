// Sparse tensors (COO and CSR) and nested ones (of strided layout) are made of dense tensors. Most
// of their operators are host code that works on these, and is the same for CPU and CUDA: it runs
// as it is, and what it allocates is simulated. Those with a CUDA kernel of their own are in
// sparse.h.
#pragma once
#include <ATen/native/FunctionOfAMatrixUtils.h>

#include "deferring.h"

namespace vramcast {

// As in torch's native_functions.yaml: not the same function on CPU and CUDA.
static const std::unordered_set<std::string> own_sparse_kernels = {
    "aten::add.out",
    "aten::bmm",
    "aten::bmm.out",
    "aten::_sparse_sparse_matmul",
    "aten::mul.out",
    "aten::sspaddmm.out",
    "aten::_sparse_sum_backward",
    "aten::_sparse_softmax",
    "aten::_sparse_softmax_backward_data",
    "aten::_sparse_log_softmax",
    "aten::_sparse_log_softmax_backward_data",
    "aten::addmm",
    "aten::addmm.out",
    "aten::addmm_",
    "aten::_coalesce",
    "aten::hspmm.out",
    "aten::hspmm",
    "aten::index_select"};
static const std::unordered_set<std::string> own_compressed_kernels = {
    "aten::add.out",
    "aten::addmv.out",
    "aten::baddbmm.out",
    "aten::bmm.out",
    "aten::_sparse_csr_sum.dim_dtype",
    "aten::_sparse_csr_prod.dim_dtype",
    "aten::sparse_sampled_addmm.out",
    "aten::sparse_sampled_addmm",
    "aten::_sparse_mm_reduce_impl",
    "aten::_sparse_mm_reduce_impl_backward",
    "aten::addmm.out",
    "aten::triangular_solve.X",
    "aten::_spsolve"};
static const std::unordered_set<std::string> own_nested_kernels = {
    "aten::bmm",
    "aten::_transform_bias_rescale_qkv",
    "aten::to_padded_tensor",
    "aten::_nested_tensor_softmax_with_shape",
    "aten::_native_multi_head_attention",
    "aten::_fused_sdp_choice",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_backward",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_cudnn_attention_backward"};

// Of a factory only the layout says so.
static bool is_made_of_dense(const Operator& info, DispatchKeySet keys,
                             c10::ArrayRef<IValue> arguments) {
  if (info.layout_argument >= 0 && arguments[info.layout_argument].isInt() &&
      arguments[info.layout_argument].toLayout() != c10::kStrided)
    return true;
  return keys.has(DispatchKey::SparseCUDA) || keys.has(DispatchKey::SparseCsrCUDA) ||
         keys.has(DispatchKey::NestedTensorCUDA);
}

// The only part of matrix_exp that is a kernel: it writes into a tensor that is given.
static void combine_powers(at::TensorIterator& given, int64_t input_stride, int64_t stride,
                           int64_t count) {
  const auto &output = given.tensor(0), &powers = given.tensor(1);
  const auto to = known_values(output, true), from = known_values(powers),
             factors = known_values(given.tensor(2));
  if (!to.defined() || !from.defined() || !factors.defined()) return forget_values(output);
  if (is_guess(powers)) note_guess(output);
  const BelowSimulation below;
  const auto after = [](const at::Tensor& one, int64_t elements) {
    return one.as_strided(one.sizes(), one.strides(), one.storage_offset() + elements);
  };
  for (int64_t i = 0; i < count; ++i)
    to.add_(after(from, i * input_stride).mul(after(factors, i * stride)));
}

inline void install_matrix_stub() {
  at::native::_compute_linear_combination_stub.set_cuda_dispatch_ptr(&combine_powers);
}

template <DispatchKey key>
static void run_host_code(const c10::OperatorHandle& op, DispatchKeySet, Stack* stack) {
  op.redispatchBoxed(DispatchKeySet(key), stack);
}

static void share_host_code(const c10::OperatorHandle& op, const c10::OperatorName& name,
                            std::vector<c10::RegistrationHandleRAII>& registrations) {
  const auto full_name =
      name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  const auto share = [&](DispatchKey from, DispatchKey to, const auto& own, auto kernel) {
    if (op.hasKernelForDispatchKey(from) && !own.count(full_name))
      registrations.push_back(c10::Dispatcher::singleton().registerImpl(
          name, to, std::move(kernel), std::nullopt, nullptr, "vramcast"));
  };
  share(DispatchKey::SparseCPU, DispatchKey::SparseCUDA, own_sparse_kernels,
        c10::KernelFunction::makeFromBoxedFunction<&run_host_code<DispatchKey::SparseCPU>>());
  share(DispatchKey::SparseCsrCPU, DispatchKey::SparseCsrCUDA, own_compressed_kernels,
        c10::KernelFunction::makeFromBoxedFunction<&run_host_code<DispatchKey::SparseCsrCPU>>());
  share(DispatchKey::NestedTensorCPU, DispatchKey::NestedTensorCUDA, own_nested_kernels,
        c10::KernelFunction::makeFromBoxedFunction<&run_host_code<DispatchKey::NestedTensorCPU>>());
}

}  // namespace vramcast
