// Autocast converts an operator's arguments in the order in which the compiler evaluates function arguments: from the last to the first
// on x86-64, where the GPUs are, and from the first to the last on 64-bit Arm. Elsewhere than on x86-64 its wrappers are replaced by ones
// that keep the order of x86-64, so that a prediction does not depend on the machine it was made on.
#pragma once
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace vramcast {

inline c10::IValue cast_argument(const c10::IValue& value, at::ScalarType type) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(at::autocast::cached_cast(type, value.toTensor(), c10::kCUDA)) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(at::autocast::cached_cast(type, tensor, c10::kCUDA));
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

#define VRAMCAST_NAME(op, ...) std::pair<std::string, std::string>{"aten::" #op, std::string(#__VA_ARGS__)},

inline void keep_cast_order(std::vector<c10::RegistrationHandleRAII>& registrations) {
  // a build without CUDA has no wrapper at all for cuDNN's recurrent networks
  registrations.push_back(c10::Dispatcher::singleton().registerImpl(
      c10::OperatorName("aten::_cudnn_rnn", ""), c10::DispatchKey::AutocastCUDA, c10::KernelFunction::makeFromBoxedFunction<&cast_and_call<false>>(),
      std::nullopt, nullptr, "vramcast"));
#if !defined(__x86_64__)
  const std::vector<std::pair<std::string, std::string>> lower = {AT_FORALL_LOWER_PRECISION_FP(VRAMCAST_NAME)}, single = {AT_FORALL_FP32(VRAMCAST_NAME)};
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto replace = [&](const auto& names, c10::KernelFunction kernel) {
    for (const auto& [name, overload] : names) {
      const c10::OperatorName full(name, overload);
      if (dispatcher.findOp(full)) registrations.push_back(dispatcher.registerImpl(full, c10::DispatchKey::AutocastCUDA, kernel, std::nullopt, nullptr, "vramcast"));
    }
  };
  replace(lower, c10::KernelFunction::makeFromBoxedFunction<&cast_and_call<false>>());
  replace(single, c10::KernelFunction::makeFromBoxedFunction<&cast_and_call<true>>());
#endif
}

}  // namespace vramcast
