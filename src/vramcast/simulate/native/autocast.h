// Autocast converts an operator's arguments in the order in which the compiler evaluates function
// arguments: from the last to the first on x86-64, where the GPUs are, and from the first to the
// last on 64-bit Arm. Elsewhere than on x86-64 its wrappers are replaced by ones that keep the
// order of x86-64, so that a prediction does not depend on the machine it was made on.
#pragma once
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace vramcast {

inline c10::IValue cast_argument(const c10::IValue& value, at::ScalarType type) {
  if (value.isTensor())
    return value.toTensor().defined()
               ? c10::IValue(at::autocast::cached_cast(type, value.toTensor(), c10::kCUDA))
               : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector())
      tensors.push_back(at::autocast::cached_cast(type, tensor, c10::kCUDA));
    return tensors;
  }
  return value;
}

template <bool to_single>
void cast_and_call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastCUDA);
  const auto type = to_single ? at::kFloat : at::autocast::get_autocast_dtype(c10::kCUDA);
  const auto count = op.schema().arguments().size();
  for (size_t i = 0; i < count; ++i) {
    auto& value = (*stack)[stack->size() - 1 - i];
    value = cast_argument(value, type);
  }
  op.callBoxed(stack);
}

// As torch does on a GPU: the weights are converted into one new buffer, then the other arguments
// are; to half, whatever autocast says.
inline void cast_recurrent(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastCUDA);
  const auto type = at::kHalf;
  const auto first = stack->size() - op.schema().arguments().size();
  const std::vector<at::Tensor> weights = (*stack)[first + 1].toTensorVector();
  if (weights[0].scalar_type() == at::kFloat) {
    int64_t num_elements = 0, offset = 0;
    for (const auto& weight : weights) num_elements += weight.numel();
    const auto buffer =
        at::empty({num_elements}, weights[0].options().dtype(type).requires_grad(false));
    c10::List<at::Tensor> views;
    for (const auto& weight : weights) {
      auto view = buffer.narrow(0, offset, weight.numel()).view(weight.sizes()).detach();
      view.copy_(weight);
      offset += weight.numel();
      views.push_back(view);
    }
    (*stack)[first + 1] = views;
    (*stack)[first + 3] = buffer;
  }
  for (const auto i : {5, 4, 0}) (*stack)[first + i] = cast_argument((*stack)[first + i], type);
  op.callBoxed(stack);
}

#define VRAMCAST_NAME(op, ...) \
  std::pair<std::string, std::string>{"aten::" #op, std::string(#__VA_ARGS__)},

inline void keep_cast_order(std::vector<c10::RegistrationHandleRAII>& registrations) {
  // a build without CUDA has no wrapper at all for cuDNN's recurrent networks
  registrations.push_back(c10::Dispatcher::singleton().registerImpl(
      c10::OperatorName("aten::_cudnn_rnn", ""), c10::DispatchKey::AutocastCUDA,
      c10::KernelFunction::makeFromBoxedFunction<&cast_recurrent>(), std::nullopt, nullptr,
      "vramcast"));
#if !defined(__x86_64__)
  const std::vector<std::pair<std::string, std::string>> lower = {AT_FORALL_LOWER_PRECISION_FP(
                                                             VRAMCAST_NAME)},
                                                         single = {AT_FORALL_FP32(VRAMCAST_NAME)};
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto replace = [&](const auto& names, c10::KernelFunction kernel) {
    for (const auto& [name, overload] : names) {
      const c10::OperatorName full(name, overload);
      if (dispatcher.findOp(full))
        registrations.push_back(dispatcher.registerImpl(full, c10::DispatchKey::AutocastCUDA,
                                                        kernel, std::nullopt, nullptr, "vramcast"));
    }
  };
  replace(lower, c10::KernelFunction::makeFromBoxedFunction<&cast_and_call<false>>());
  replace(single, c10::KernelFunction::makeFromBoxedFunction<&cast_and_call<true>>());
#endif
}

}  // namespace vramcast
