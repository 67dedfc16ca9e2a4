// A CUDA device that computes nothing and remembers every allocation.
//
// Tensors on it are ordinary CUDA tensors to the rest of torch: autograd, autocast, optimizers and the dispatcher run unchanged, in C++,
// and free their memory when the real ones would. Only the kernels are missing. While the device is on, the dispatch key Fake is part of
// the thread's state; it sits below autograd and above every backend, so each operator arrives in simulate() just before its kernel would
// run. Shapes come from torch's own Meta kernels; storages come from the recording allocator below.
//
// Kernels whose CUDA version allocates more than its result are written in Python (vramcast/simulate/kernels) and registered for the same
// key; they take precedence over the fallback here.
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
#include <torch/library.h>

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "autocast.h"
#include "hooks.h"
#include "products.h"
#include "recurrent.h"
#include "values.h"
#include "work.h"

namespace vramcast {
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using torch::jit::Stack;

static IValue to_meta(const IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() ? IValue(meta_of(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> metas;
    const auto tensors = value.toTensorVector();
    metas.reserve(tensors.size());
    for (const auto& tensor : tensors) metas.push_back(tensor.defined() ? meta_of(tensor) : tensor);
    return metas;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> metas;
    for (const IValue& item : value.toListRef()) {
      metas.push_back(item.isTensor() && item.toTensor().defined() ? std::optional<at::Tensor>(meta_of(item.toTensor())) : std::nullopt);
    }
    return metas;
  }
  if (value.isDevice()) return c10::Device(c10::kMeta);
  if (value.isGenerator()) return IValue();
  return value;
}

// Replaces one tensor of the Meta result by the simulated one.
static at::Tensor materialise(const at::Tensor& meta, bool on_gpu) {
  if (!meta.defined()) return meta;
  auto tensor = new_tensor(meta.sizes(), meta.strides(), meta.dtype(), on_gpu);
  if (meta.is_conj()) tensor._set_conj(true);
  if (meta.is_neg()) tensor._set_neg(true);
  return tensor;
}

static void finish_written(const at::Tensor& tensor, const at::Tensor& meta) {
  // ops with out= arguments resize them
  if (meta.sizes() != tensor.sizes() || meta.strides() != tensor.strides()) resize(tensor, meta.sizes(), meta.strides());
}

static IValue to_result(const IValue& meta, const IValue* aliased, bool writes, bool on_gpu) {
  if (meta.isTensor()) {
    const auto& tensor = meta.toTensor();
    if (aliased && aliased->isTensor() && aliased->toTensor().defined()) {
      if (!writes) return view_of(aliased->toTensor(), tensor, on_gpu);
      finish_written(aliased->toTensor(), tensor);
      return *aliased;
    }
    return materialise(tensor, on_gpu);
  }
  if (meta.isTensorList()) {
    c10::List<at::Tensor> results;
    const auto metas = meta.toTensorVector();
    for (const auto& tensor : metas) {
      if (aliased && aliased->isTensor()) results.push_back(view_of(aliased->toTensor(), tensor, on_gpu));
      else results.push_back(materialise(tensor, on_gpu));
    }
    if (aliased && aliased->isTensorList()) return *aliased;
    return results;
  }
  return meta;
}

static int32_t (*load_more_meta_kernels)() = nullptr;

static void call_meta(const c10::OperatorHandle& op, const Operator& info, Stack& stack) {
  BelowSimulation below;
  if (info.surrogate) {
    auto result = (*info.surrogate)(stack);
    stack.clear();
    stack.emplace_back(std::move(result));
    return;
  }
  if (!load_more_meta_kernels) return op.callBoxed(&stack);
  const Stack arguments = stack;
  try {
    op.callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    load_more_meta_kernels();
    load_more_meta_kernels = nullptr;
    stack = arguments;
    op.callBoxed(&stack);
  }
}

// Work on the host goes on for real while it is small: what it computes may steer the program. A large float tensor is left as zeros.
static bool runs_on_host(const Operator& info, c10::ArrayRef<IValue> arguments) {
  int64_t float_bytes = 0, other_bytes = 0;
  auto count = [&](const at::Tensor& tensor) {
    const auto num_bytes = tensor.numel() * tensor.itemsize();
    (c10::isFloatingType(tensor.scalar_type()) ? float_bytes : other_bytes) += num_bytes;
  };
  for (const auto& argument : arguments) for_each_tensor(argument, count);
  return float_bytes <= (256 << 10) && other_bytes <= (32 << 20);
}

static int64_t factory_bytes(const Stack& metas) {
  int64_t num_bytes = 0;
  for (const auto& value : metas) for_each_tensor(value, [&](const at::Tensor& tensor) { num_bytes += tensor.numel() * tensor.itemsize(); });
  return num_bytes;
}

// Copies within the device take nothing. Between host and device a strided or converted copy goes through a dense buffer on the device.
static void simulate_copy(const at::Tensor& destination, const at::Tensor& source) {
  const bool crosses = destination.is_cuda() != source.is_cuda();
  if (crosses) {
    const bool same_layout = destination.strides() == source.strides() && destination.is_non_overlapping_and_dense();
    const bool both_dense = destination.is_contiguous() && source.is_contiguous();
    const bool direct = destination.dtype() == source.dtype() && destination.sizes() == source.sizes() && (same_layout || both_dense);
    if (!direct && destination.is_cuda() && !destination.is_contiguous()) new_tensor(destination.sizes(), dense_strides(destination.sizes()), destination.dtype(), true);
    if (!direct && source.is_cuda() && !source.is_non_overlapping_and_dense()) new_tensor(source.sizes(), dense_strides(source.sizes()), source.dtype(), true);
  }
  const auto values = known_values(source);
  if (!destination.is_cuda()) {
    // unknown contents arrive on the host as zeros
    BelowSimulation below;
    if (values.defined()) destination.copy_(values); else destination.zero_();
    return;
  }
  if (values.defined() && may_carry_values(destination)) set_values(destination, values); else forget_values(destination);
}

// Scratch memory of a reduction: taken after the result, given back when the kernel has been launched.
static void simulate_reduction(const c10::OperatorHandle& op, const Reduction& reduction, c10::ArrayRef<IValue> arguments, const IValue& first_result) {
  const auto& input = arguments[0].toTensor();
  const auto& result = first_result.toTensor();
  if (input.numel() == 0 || input.dim() > 25) return;
  auto type = input.scalar_type();
  at::Tensor converted;
  if (reduction.converts && type != result.scalar_type() && !(c10::isReducedFloatingType(type) && result.scalar_type() == at::kFloat)) {
    type = result.scalar_type();
    converted = new_tensor(input.sizes(), dense_strides(input.sizes()), result.dtype(), true);
  }
  const auto& source = converted.defined() ? converted : input;
  const auto mask = reduced_dims(op.schema(), arguments, input.dim());
  ReductionScratch scratch;
  {
    BelowSimulation below;
    const auto iter = reduction_iterator(meta_of(source), meta_of(result), mask);
    const auto item_bytes = static_cast<int64_t>(source.itemsize());
    const int loads = reduction.accumulator == Accumulator::welford ? 2 : !reduction.wide_loads || item_bytes > 2 ? 4 : item_bytes == 2 ? 8 : 16;
    const auto address = reinterpret_cast<int64_t>(source.unsafeGetTensorImpl()->unsafe_storage().data_ptr().get()) + source.storage_offset() * item_bytes;
    scratch = reduction_scratch(iter, gpu, address, item_bytes, accumulator_bytes(reduction.accumulator, type), loads);
  }
  if (!scratch.buffer_bytes) return;
  const auto buffer = device_allocator.allocate(scratch.buffer_bytes);
  const auto semaphores = device_allocator.allocate(scratch.semaphore_bytes);
}

static void simulate(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const auto& info = operator_info(op);
  const auto below = keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::Fake);
  if (info.is_copy && (torch::jit::peek(*stack, 0, 3).toTensor().is_cuda() || torch::jit::peek(*stack, 1, 3).toTensor().is_cuda())) {
    const CurrentOperator current(recorder, info.name);
    simulate_copy(torch::jit::peek(*stack, 0, 3).toTensor(), torch::jit::peek(*stack, 1, 3).toTensor());
    note_copy(info, torch::jit::peek(*stack, 0, 3).toTensor(), torch::jit::peek(*stack, 1, 3).toTensor());
    torch::jit::drop(*stack, 2);
    return;
  }
  if (info.kind == Kind::redispatch) {
    const CurrentOperator current(recorder, info.name);
    return op.redispatchBoxed(below, stack);
  }

  const auto num_arguments = op.schema().arguments().size();
  const auto arguments = torch::jit::last(*stack, num_arguments);
  bool on_gpu = false, on_meta = false, any_tensor = false;
  for (const auto& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      any_tensor = true;
      on_gpu = on_gpu || tensor.is_cuda();
      on_meta = on_meta || tensor.is_meta();
    });
  }
  if (info.device_argument >= 0 && arguments[info.device_argument].isDevice()) {
    on_gpu = arguments[info.device_argument].toDevice().is_cuda();
    on_meta = arguments[info.device_argument].toDevice().is_meta();
  }
  if (!on_gpu && (on_meta || (any_tensor && runs_on_host(info, arguments)))) {
    c10::impl::ExcludeDispatchKeyGuard guard(DispatchKeySet(DispatchKey::Fake));
    return op.redispatchBoxed(below, stack);
  }

  const CurrentOperator current(recorder, info.name);
  Stack metas;
  metas.reserve(num_arguments);
  for (const auto& argument : arguments) metas.push_back(to_meta(argument));
  std::vector<IValue> written;
  for (const int i : info.written_arguments) written.push_back(metas[i]);
  call_meta(op, info, metas);
  if (!on_gpu && !any_tensor && factory_bytes(metas) <= (256 << 10)) {
    c10::impl::ExcludeDispatchKeyGuard guard(DispatchKeySet(DispatchKey::Fake));
    return op.redispatchBoxed(below, stack);
  }

  std::vector<IValue> results;
  results.reserve(metas.size());
  for (size_t i = 0; i < metas.size(); ++i) {
    const int aliased = i < info.result_aliases.size() ? info.result_aliases[i] : -1;
    results.push_back(to_result(metas[i], aliased >= 0 ? &arguments[aliased] : nullptr, aliased >= 0 && info.result_writes[i], on_gpu));
  }
  if (info.is_gemm && on_gpu) simulate_gemm(info, arguments);
  if (info.reduction && on_gpu && results[0].isTensor()) simulate_reduction(op, *info.reduction, arguments, results[0]);
  if (on_gpu) carry_values(op, info, arguments, results);
  if (on_gpu) note_work(info, arguments, results);
  torch::jit::drop(*stack, num_arguments);
  for (auto& result : results) stack->push_back(std::move(result));
}

// Some of torch's own code switches the key Fake off (torch.tensor does), and threads it starts do not inherit it: what then arrives at
// the device itself is simulated all the same.
static void simulate_at_device(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const bool excluded = c10::impl::tls_is_dispatch_key_excluded(DispatchKey::Fake);
  c10::impl::tls_set_dispatch_key_excluded(DispatchKey::Fake, false);
  try {
    simulate(op, keys, stack);
  } catch (...) {
    c10::impl::tls_set_dispatch_key_excluded(DispatchKey::Fake, excluded);
    throw;
  }
  c10::impl::tls_set_dispatch_key_excluded(DispatchKey::Fake, excluded);
}

struct IgnoreWarnings final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Kernels at the device itself. A build of torch without CUDA has none, and two kinds of operator need one there: those torch.tensor uses,
// and those that would otherwise decompose although CUDA has a kernel and a gradient formula for them.
static void register_device_kernels() {
  static std::vector<c10::RegistrationHandleRAII> registrations;
  static const std::unordered_set<std::string> always = {"aten::empty_strided", "aten::empty", "aten::copy_"};
  IgnoreWarnings quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  keep_cast_order(registrations);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!op) continue;
    const bool missing = !op->hasKernelForDispatchKey(DispatchKey::CUDA);
    const bool decomposes = missing && op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
        has_cuda_kernel(name.name, op->hasKernelForDispatchKey(DispatchKey::CPU));
    if (!decomposes && !always.count(name.name)) continue;
    registrations.push_back(dispatcher.registerImpl(name, DispatchKey::CUDA, c10::KernelFunction::makeFromBoxedFunction<&simulate_at_device>(),
                                                    std::nullopt, nullptr, "vramcast"));
  }
}

// For the kernels written in Python: what a tensor really contains, where that is known.
static std::optional<at::Tensor> values_of(const at::Tensor& tensor) {
  auto host = known_values(tensor);
  if (!host.defined()) return std::nullopt;
  BelowSimulation below;
  return host.clone();
}
static void set_values_of(const at::Tensor& tensor, const at::Tensor& values) {
  if (may_carry_values(tensor)) set_values(tensor, values);
}
TORCH_LIBRARY(vramcast, library) {
  library.def("values(Tensor tensor) -> Tensor?");
  library.def("set_values(Tensor tensor, Tensor values) -> ()");
}
TORCH_LIBRARY_IMPL(vramcast, Fake, library) {
  library.impl("values", &values_of);
  library.impl("set_values", &set_values_of);
}

static auto fallback = c10::Dispatcher::singleton().registerFallback(
    DispatchKey::Fake, c10::KernelFunction::makeFromBoxedFunction<&simulate>(), "vramcast");

// scaled_dot_product_attention asks a dispatch stub which kernel to use; the answer is a Python kernel's (kernels/attention.py).
static int64_t sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask,
                          double dropout, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  return at::_fused_sdp_choice(query, key, value, mask, dropout, is_causal, scale, enable_gqa);
}

}  // namespace vramcast

// ---------------------------------------------------------------------------------------------------------------- for ctypes
extern "C" {
using namespace vramcast;

void vramcast_install() {
  c10::SetAllocator(c10::kCUDA, &device_allocator, 255);
  register_device_kernels();
  install_rnn_stubs();
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&sdp_choice);
}
void vramcast_reset() {
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  recorder.events.clear();
  recorder.allocations.clear();
  recorder.shapes.clear();
  works.list.clear();
  recorder.epoch += 1;
  recorder.allocated_bytes = recorder.peak_allocated_bytes = 0;
}
void vramcast_set_gpu(int32_t num_multiprocessors, int32_t max_threads, int64_t gemm_workspace_bytes, int64_t gemm_lt_workspace_bytes) {
  gpu = {num_multiprocessors, max_threads};
  recorder.gemm_workspace_bytes = gemm_workspace_bytes;
  recorder.gemm_lt_workspace_bytes = gemm_lt_workspace_bytes;
}
void vramcast_set_site_callback(int64_t (*callback)(), int64_t minimum_bytes) {
  recorder.site_callback = callback;
  recorder.site_minimum_bytes = minimum_bytes;
}
void vramcast_set_meta_loader(int32_t (*loader)()) { load_more_meta_kernels = loader; }
int32_t vramcast_begin_kernel(const char* name) {
  Works::depth() += 1;
  return recorder.begin_kernel(name);
}
void vramcast_end_kernel(int32_t before) {
  Works::depth() -= 1;
  recorder.end_kernel(before);
}
void vramcast_mark(int64_t event) {
  recorder.events.push_back(event);
  if (event == 0) works.add({0, 0, {0, 0, 0, 0}, -1, -1, forward, 0});
}
int64_t vramcast_allocated() { return recorder.allocated_bytes; }
int64_t vramcast_peak_allocated() { return recorder.peak_allocated_bytes; }
int64_t vramcast_num_events() { return recorder.events.size(); }
const int64_t* vramcast_events() { return recorder.events.data(); }
int64_t vramcast_num_allocations() { return recorder.allocations.size(); }
const Allocation* vramcast_allocations() { return recorder.allocations.data(); }
int64_t vramcast_num_works() { return works.list.size(); }
const Work* vramcast_works() { return works.list.data(); }
void vramcast_add_work(const char* name, int32_t dtype, double flops, double num_bytes, const int64_t* sizes, int32_t access) {
  works.add({flops, num_bytes, {sizes[0], sizes[1], sizes[2], sizes[3]}, recorder.intern(name), dtype, forward, access});
}
int64_t vramcast_num_shapes() { return recorder.shapes.size(); }
const int64_t* vramcast_shapes() { return recorder.shapes.data(); }
const char* vramcast_name(int64_t index) { return recorder.names.at(index).c_str(); }
int64_t vramcast_block_id(int64_t address) { return device_allocator.id_at(address); }
// Lets one operator through to its real kernel; returns what to restore.
bool vramcast_set_excluded(bool excluded) {
  const bool before = c10::impl::tls_is_dispatch_key_excluded(DispatchKey::Fake);
  c10::impl::tls_set_dispatch_key_excluded(DispatchKey::Fake, excluded);
  return before;
}
void vramcast_enable(bool enabled) { c10::impl::tls_set_dispatch_key_included(DispatchKey::Fake, enabled); }
}
