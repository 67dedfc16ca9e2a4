// The contents of what kernels written in Python make. They are computed before the kernel runs,
// which may write to its arguments, and kept until it has made its results.
#pragma once
#include "deriving.h"

namespace vramcast {

struct OfKernel {
  Stack results;
  std::vector<std::pair<at::Tensor, at::Tensor>> written;  // arguments, and what they contain
  bool guessed = false;
};
static OfKernel& of_kernel() {
  static thread_local OfKernel one;
  return one;
}

// What is returned says nothing.
static IValue nothing_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType: return at::Tensor();
    case c10::TypeKind::ListType: return c10::List<at::Tensor>();
    case c10::TypeKind::BoolType: return false;
    case c10::TypeKind::FloatType: return 0.;
    default: return 0;
  }
}

static void compute_for_kernel(const c10::OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const auto& info = operator_info(op);
  const auto arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  for (const auto& one : op.schema().returns()) stack->push_back(nothing_of(*one.type()));
  if (kernel_depth() > 0) return;
  auto& made = of_kernel();
  made = {};
  HostCall call;
  const bool is_known = computing.has_room(0) && bring_to_host(info, arguments, true, call);
  const Stack given = call.values;
  if (is_known && !call.drawn && run_on_cpu(op, info, arguments, std::nullopt, call.values)) {
    made.results = std::move(call.values);
    made.guessed = call.guessed;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!info.writes_to(i) && !info.writes_unsaid(i)) continue;
      std::vector<at::Tensor> tensors, hosts;
      for_each_tensor(arguments[i], [&](const at::Tensor& one) { tensors.push_back(one); });
      for_each_tensor(given[i], [&](const at::Tensor& one) { hosts.push_back(one); });
      for (size_t j = 0; j < tensors.size(); ++j) made.written.emplace_back(tensors[j], hosts[j]);
    }
  }
}

static void keep_one(const at::Tensor& tensor, const at::Tensor& host, bool guessed) {
  if (!tensor.is_cuda() || host.sizes() != tensor.sizes() || !may_carry_values(tensor)) return;
  set_values(tensor, host);
  if (guessed) note_guess(tensor);
}

static void keep_computed(at::TensorList results) {
  if (kernel_depth() > 0) return;
  auto made = std::exchange(of_kernel(), {});
  std::vector<at::Tensor> hosts;
  for (const auto& value : made.results)
    for_each_tensor(value, [&](const at::Tensor& one) { hosts.push_back(one); });
  made.results.clear();
  for (size_t i = 0; i < std::min(results.size(), hosts.size()); ++i)
    keep_one(results[i], std::exchange(hosts[i], {}), made.guessed);
  for (const auto& [tensor, host] : made.written) keep_one(tensor, host, made.guessed);
}

// By a key that torch uses nowhere else, so that Python can ask for it (kernels/__init__.py).
static auto compute_fallback = c10::Dispatcher::singleton().registerFallback(
    DispatchKey::TESTING_ONLY_GenericMode,
    c10::KernelFunction::makeFromBoxedFunction<&compute_for_kernel>(), "vramcast");

TORCH_LIBRARY_FRAGMENT(vramcast, library) {
  library.def("keep_computed(Tensor[] results) -> ()");
}
TORCH_LIBRARY_IMPL(vramcast, Fake, library) { library.impl("keep_computed", &keep_computed); }

}  // namespace vramcast
