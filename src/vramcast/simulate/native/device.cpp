// A CUDA device that computes nothing and remembers every allocation.
//
// Tensors on it are ordinary CUDA tensors to the rest of torch: autograd, autocast, optimizers and
// the dispatcher run unchanged, in C++, and free their memory when the real ones would. Only the
// kernels are missing. While the device is on, the dispatch key Fake is part of the thread's state;
// it sits below autograd and above every backend, so each operator arrives in simulate() just
// before its kernel would run. Shapes come from torch's own Meta kernels; storages come from the
// recording allocator below.
//
// Kernels whose CUDA version allocates more than its result are written in Python
// (vramcast/simulate/kernels) and registered for the same key; they take precedence over the
// fallback here.
#include <ATen/EmptyTensor.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/library.h>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "argument_checks.h"
#include "autocast.h"
#include "by_hand.h"
#include "collectives.h"
#include "hooks.h"
#include "host_values.h"
#include "meta.h"
#include "products.h"
#include "reading.h"
#include "recurrent.h"
#include "repeating.h"
#include "scratch.h"
#include "scripted.h"
#include "set_storage.h"
#include "sparse.h"
#include "of_kernels.h"
#include "values.h"
#include "work.h"

namespace vramcast {
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using torch::jit::Stack;

static int64_t total_bytes(const Stack& metas) {
  int64_t num_bytes = 0;
  for (const auto& value : metas)
    for_each_tensor(
        value, [&](const at::Tensor& tensor) { num_bytes += tensor.numel() * tensor.itemsize(); });
  return num_bytes;
}

// Where an operator runs, by its arguments.
struct Placement {
  bool on_gpu = false, on_meta = false, any_tensor = false, left_on_host = false;
};

static Placement placement_of(const Operator& info, c10::ArrayRef<IValue> arguments) {
  Placement found;
  for (const auto& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      found.any_tensor = true;
      found.on_gpu = found.on_gpu || tensor.is_cuda();
      found.on_meta = found.on_meta || tensor.is_meta();
      found.left_on_host = found.left_on_host || is_left_on_host(tensor);
    });
  }
  if (info.device_argument >= 0 && arguments[info.device_argument].isDevice()) {
    const auto device = arguments[info.device_argument].toDevice();
    found.on_gpu = device.is_cuda();
    found.on_meta = device.is_meta();
    if (found.on_gpu && device.index() > 0) used_gpus |= 1 << std::min<int>(device.index(), 30);
    found.left_on_host = false;
  }
  return found;
}

// torch's own error where the number is too large, as -1e9 is for half precision.
static void check_range(const at::Tensor& tensor, const at::Scalar& number) {
  const auto type = tensor.scalar_type();
  if (type == at::kHalf) number.to<at::Half>();
  if (type == at::kBFloat16) number.to<at::BFloat16>();
  if (type == at::kFloat) number.to<float>();
}

static bool asks_for_pinned(const c10::OperatorHandle& op, c10::ArrayRef<IValue> arguments) {
  const auto index = op.schema().argumentIndexWithName("pin_memory");
  return index && arguments[*index].isBool() && arguments[*index].toBool();
}

// copy_(destination, source, non_blocking); false where neither is on the device.
static bool simulate_copy_operator(const Operator& info, Stack* stack) {
  const auto& destination = torch::jit::peek(*stack, 0, 3).toTensor();
  const auto& source = torch::jit::peek(*stack, 1, 3).toTensor();
  if (!destination.is_cuda() && !source.is_cuda()) return false;
  const CurrentOperator current(recorder, info.name);
  const bool non_blocking = torch::jit::peek(*stack, 2, 3).toBool();
  simulate_copy(destination, source, non_blocking);
  note_copy(info, destination, source, non_blocking);
  torch::jit::drop(*stack, 2);
  return true;
}

static std::vector<IValue> make_results(const Operator& info, c10::ArrayRef<IValue> arguments,
                                        const Stack& metas, bool on_gpu) {
  std::vector<IValue> results;
  results.reserve(metas.size());
  for (size_t i = 0; i < metas.size(); ++i) {
    const int aliased = i < info.result_aliases.size() ? info.result_aliases[i] : -1;
    results.push_back(to_result(metas[i], aliased >= 0 ? &arguments[aliased] : nullptr,
                                aliased >= 0 && info.result_writes[i], on_gpu));
  }
  return results;
}

static void run_without_simulation(const c10::OperatorHandle& op, DispatchKeySet keys,
                                   Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard guard(DispatchKeySet(DispatchKey::Fake));
  op.redispatchBoxed(keys, stack);
}

// Runs a CUDA kernel that is code of the host. False where that fails, as where it calls a compiled
// library that needs a GPU: then the Meta kernel tells what the operator returns.
static bool run_host_kernel(const c10::OperatorHandle& op, const Operator& info,
                            DispatchKeySet keys, Stack* stack) {
  const auto num_arguments = op.schema().arguments().size();
  const Stack arguments(stack->end() - num_arguments, stack->end());
  const auto num_below = stack->size() - num_arguments;
  try {
    const CurrentOperator current(recorder, info.name);
    const PartOfKernel part(info.is_collective);
    op.redispatchBoxed(keys, stack);
  } catch (const std::exception& error) {
    const bool is_full = std::string(error.what()).find("out of memory") != std::string::npos;
    if (is_full || !op.hasKernelForDispatchKey(DispatchKey::Meta)) throw;
    stack->resize(num_below);
    stack->insert(stack->end(), arguments.begin(), arguments.end());
    simulate_from_now_on(op);
    return false;
  }
  if (info.is_collective) note_collective(op, info, arguments);
  if (info.is_of_extension)
    note_work(info, arguments, torch::jit::last(*stack, op.schema().returns().size()).vec());
  return true;
}

static std::vector<IValue> simulate_on_gpu(const c10::OperatorHandle& op, const Operator& info,
                                           c10::ArrayRef<IValue> arguments) {
  if (info.filled_with >= 0)
    check_range(arguments[0].toTensor(), arguments[info.filled_with].toScalar());
  const CurrentOperator current(recorder, info.name);
  const auto described = described_results(op, info, arguments);
  const auto copy = copy_made_first(info, arguments, described->metas);
  auto results = make_results(info, arguments, described->metas, true);
  // as torch's kernels of lists do themselves: a gradient may need what was there before
  if (info.updates_list)
    for_each_tensor(arguments[0], [](const at::Tensor& tensor) {
      tensor.unsafeGetTensorImpl()->bump_version();
    });
  if (info.is_gemm) simulate_gemm(info, arguments);
  if (info.reduction && results[0].isTensor())
    simulate_reduction(op, *info.reduction, arguments, results[0]);
  if (info.draws == Draws::choices) simulate_choices(arguments);
  if (info.sorts_places && at::globalContext().deterministicAlgorithms())
    simulate_sorted_places(info, arguments, results[0].toTensor());
  if (info.leaves_complex) simulate_complex_result(arguments[0].toTensor());
  carry_values(op, info, arguments, results);
  note_work(info, arguments, results, *described);
  return results;
}

static void replace_arguments(Stack* stack, size_t num_arguments, std::vector<IValue> results) {
  torch::jit::drop(*stack, num_arguments);
  for (auto& result : results) stack->push_back(std::move(result));
}

static void simulate(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  recorder.locate_new_node();
  const auto& info = operator_info(op);
  const auto below = below_simulation(keys);
  // up to torch 2.12 this key comes before those of modes and wrapper tensors
  if (below.has(DispatchKey::Python)) return op.redispatchBoxed(below, stack);
  const auto num_arguments = op.schema().arguments().size();
  const auto arguments = torch::jit::last(*stack, num_arguments);
  const bool made_of_dense = is_made_of_dense(info, below, arguments);
  if (info.is_copy && !made_of_dense && simulate_copy_operator(info, stack)) return;
  if (auto made = made_of_dense ? at::Tensor() : made_by_hand(info, arguments); made.defined())
    return replace_arguments(stack, num_arguments, {std::move(made)});
  if (made_of_dense || info.kind == Kind::redispatch) {
    const CurrentOperator current(recorder, info.name);
    return op.redispatchBoxed(below, stack);
  }

  if (info.is_host_code && !below.has(DispatchKey::Meta)) {
    const CurrentOperator current(recorder, info.name);
    const bool on_gpu = below.has(DispatchKey::CUDA);
    return op.redispatchBoxed(on_gpu ? DispatchKeySet(DispatchKey::CPU) : below, stack);
  }
  const auto [on_gpu, on_meta, any_tensor, left_on_host] = placement_of(info, arguments);
  TORCH_CHECK(!on_gpu || !left_on_host || !info.wants_one_device, one_device_error,
              op.schema().name(), ")");
  if (on_gpu) check_mask(info, arguments);
  if (!on_gpu && (on_meta || (any_tensor && runs_on_host(info, arguments)))) {
    note_host_values(info, arguments, true);
    const auto given = on_meta ? Stack() : arguments.vec();
    run_without_simulation(op, below, stack);
    if (!on_meta)
      note_host_work(info, given, torch::jit::last(*stack, op.schema().returns().size()));
    return;
  }
  if (on_gpu && info.kind == Kind::run_on_host && run_host_kernel(op, info, below, stack)) return;

  if (on_gpu) return replace_arguments(stack, num_arguments, simulate_on_gpu(op, info, arguments));
  const CurrentOperator current(recorder, info.name);
  const auto described = described_results(op, info, arguments);
  if ((!any_tensor && total_bytes(described->metas) <= max_host_float_bytes) ||
      (info.uninitialised && asks_for_pinned(op, arguments)))
    return run_without_simulation(op, below, stack);
  note_host_values(info, arguments, false);
  auto results = make_results(info, arguments, described->metas, false);
  fill_small(info, results);
  note_host_work(info, arguments, results);
  replace_arguments(stack, num_arguments, std::move(results));
}

#include "direct.h"

// Some of torch's own code switches the key Fake off (torch.tensor does), and threads it starts do
// not inherit it: what then arrives at the device itself is simulated all the same.
static void simulate_at_device(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const NotExcluded guard;
  simulate(op, keys, stack);
}

// On while something is recorded.
static std::atomic<bool> is_recording = false;

// The key Fake is switched on for each thread. One that was running before a recording began meets
// the device here for the first time. Up to torch 2.12 the key is also excluded within
// __torch_dispatch__.
static void wake_up(const c10::OperatorHandle& op, Stack* stack) {
  const NotExcluded guard;
  const bool can_wake = guard.before || !c10::impl::tls_is_dispatch_key_included(DispatchKey::Fake);
  TORCH_CHECK_NOT_IMPLEMENTED(is_recording && can_wake, "vramcast: there is no GPU for ",
                              op.schema().operator_name());
  c10::impl::tls_set_dispatch_key_included(DispatchKey::Fake, true);
  op.callBoxed(stack);
}

// A collective there is met at the device, too, and who waits for one.
static std::unordered_map<c10::OperatorName, c10::SafeKernelFunction> collectives_of_torch;
static void meet_collective(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  if (operator_info(op).waits_for_collective)
    note_wait_for_tensor(torch::jit::peek(*stack, 0, 1).toTensor());
  else if (WorkLog::depth() == 0)
    return simulate_at_device(op, keys, stack);
  collectives_of_torch.at(op.operator_name()).callBoxed(op, keys, stack);
}

static auto device_fallback = c10::Dispatcher::singleton().registerFallback(
    DispatchKey::CUDA, c10::KernelFunction::makeFromBoxedFunction<&wake_up>(), "vramcast");

struct IgnoreWarnings final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Kernels at the device itself. A build of torch without CUDA has none, and two kinds of operator
// need one there: those torch.tensor uses, and those that would otherwise decompose although CUDA
// has a kernel and a gradient formula for them.
static void register_device_kernels() {
  static std::vector<c10::RegistrationHandleRAII> registrations;
  static const std::unordered_set<std::string> always = {"aten::empty_strided", "aten::empty",
                                                         "aten::copy_"};
  IgnoreWarnings quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  keep_cast_order(registrations);
  register_sparse_kernels();
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!op) continue;
    share_host_code(*op, name, registrations);
    const bool missing = !op->hasKernelForDispatchKey(DispatchKey::CUDA);
    const bool is_collective = !missing && name.name.rfind("c10d::", 0) == 0;
    if (is_collective || name.name == "_c10d_functional::wait_tensor") {
      collectives_of_torch.emplace(name, op->getComputedKernelForDispatchKey(DispatchKey::CUDA));
      registrations.push_back(dispatcher.registerImpl(
          name, DispatchKey::CUDA, c10::KernelFunction::makeFromBoxedFunction<&meet_collective>(),
          std::nullopt, nullptr, "vramcast"));
      continue;
    }
    const bool decomposes =
        missing && op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
        has_cuda_kernel(name.name, op->hasKernelForDispatchKey(DispatchKey::CPU));
    if (!missing && !always.count(name.name) && name.name.rfind("aten::", 0) == 0) {
      // a build of torch with CUDA: its kernels would look for a GPU
      registrations.push_back(dispatcher.registerImpl(
          name, DispatchKey::CUDA, c10::KernelFunction::makeFromBoxedFunction<&wake_up>(),
          std::nullopt, nullptr, "vramcast"));
      continue;
    }
    if (!decomposes && !always.count(name.name)) continue;
    registrations.push_back(dispatcher.registerImpl(
        name, DispatchKey::CUDA, c10::KernelFunction::makeFromBoxedFunction<&simulate_at_device>(),
        std::nullopt, nullptr, "vramcast"));
  }
}

// For the kernels written in Python: what a tensor really contains, where that is known.
static std::optional<at::Tensor> values_of(const at::Tensor& tensor) {
  auto host = known_values(tensor);
  if (!host.defined()) return std::nullopt;
  kernel_has_guessed = kernel_has_guessed || is_guess(tensor);
  BelowSimulation below;
  return host.clone();
}
// What a read of a tensor gives whose contents are not known, and whether every element is that.
static std::tuple<double, bool, double> typical_value(const at::Tensor& tensor) {
  const auto typical = typical_of(tensor);
  return {as_read(tensor), typical.sure, typical.true_share};
}
// Of a tensor whose elements are some of those of another.
static void carry_spread(const at::Tensor& tensor, const at::Tensor& other) {
  const auto typical = typical_of(other);
  if (typical.has_spread() || typical.sure) set_typical(tensor, typical);
}
TORCH_LIBRARY(vramcast, library) {
  library.def("_local_scalar_dense(Tensor tensor) -> Scalar");
  library.def("values(Tensor tensor) -> Tensor?");
  library.def("set_values(Tensor tensor, Tensor values) -> ()");
  library.def("set_positions(Tensor tensor, Tensor mask) -> bool");
  library.def("forget_values(Tensor tensor) -> ()");
  library.def("begin_uniform(Tensor tensor) -> ()");
  library.def("typical(Tensor tensor) -> (float, bool, float)");
  library.def("carry_spread(Tensor tensor, Tensor other) -> ()");
}
TORCH_LIBRARY_IMPL(vramcast, Fake, library) {
  library.impl("values", &values_of);
  library.impl("set_values", &set_computed);
  library.impl("set_positions", &set_positions);
  library.impl("forget_values", &forget_values);
  library.impl("begin_uniform", &begin_uniform);
  library.impl("typical", &typical_value);
  library.impl("carry_spread", &carry_spread);
}

static auto fallback = c10::Dispatcher::singleton().registerFallback(
    DispatchKey::Fake, c10::KernelFunction::makeFromBoxedFunction<&simulate>(), "vramcast");

TORCH_LIBRARY_IMPL(aten, Fake, library) {
  library.impl("_local_scalar_dense", &read_number);
  register_direct_kernels(library);
}

// scaled_dot_product_attention asks a dispatch stub which kernel to use; the answer is a Python
// kernel's (kernels/attention.py). It is asked directly, as a CUDA function would be: modes and
// wrapper tensors, such as DTensor, do not see the question.
static int64_t sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                          std::optional<double> scale, bool enable_gqa) {
  return at::_ops::_fused_sdp_choice::redispatch(
      c10::DispatchKeySet({DispatchKey::Fake, DispatchKey::CUDA}), query, key, value, mask, dropout,
      is_causal, scale, enable_gqa);
}

}  // namespace vramcast

// last: it uses everything above
#include "exports.h"
