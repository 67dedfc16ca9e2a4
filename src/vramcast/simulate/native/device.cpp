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
#include "recorder.h"
#include "recurrent.h"
#include "reductions.h"
#include "surrogates.h"

namespace vramcast {
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using torch::jit::Stack;

// ---------------------------------------------------------------------------------------------------------------- storages

Recorder recorder;
Gpu gpu;

// What a simulated storage knows about itself; reachable from every tensor through its storage's context pointer.
struct Block {
  int64_t id;
  uintptr_t address;
  at::Tensor values;  // a CPU byte tensor with the real contents, where they are known and small
};

static std::mutex blocks_mutex;
static std::unordered_map<uintptr_t, Block*> blocks;  // by address; addresses are never used twice

static void release_block(void* context) {
  auto* block = static_cast<Block*>(context);
  recorder.free(block->id);
  {
    const std::lock_guard<std::mutex> lock(blocks_mutex);
    blocks.erase(block->address);
  }
  delete block;
}

struct RecordingAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t num_bytes) override {
    const c10::Device device(c10::kCUDA, 0);
    if (num_bytes == 0) return {nullptr, nullptr, &release_block_never, device};
    const auto id = recorder.alloc(num_bytes);
    // Unique, aligned, never dereferenced.
    const std::lock_guard<std::mutex> lock(blocks_mutex);
    auto* block = new Block{id, next_address_, {}};
    blocks[next_address_] = block;
    next_address_ += (num_bytes + 511) / 512 * 512;
    return {reinterpret_cast<void*>(block->address), block, &release_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {}
  int64_t id_at(int64_t address) const {
    const std::lock_guard<std::mutex> lock(blocks_mutex);
    const auto found = blocks.find(address);
    return found == blocks.end() ? 0 : found->second->id;
  }

 private:
  static void release_block_never(void*) {}
  uintptr_t next_address_ = uintptr_t{1} << 45;
};
static RecordingAllocator device_allocator;

// Host memory that is zero, and costs nothing until somebody touches it: a model built on the CPU before .cuda() is never filled in.
struct LazyHostAllocator final : c10::Allocator {
  struct Mapping { void* address; size_t num_bytes; };
  static void unmap(void* context) {
    auto* mapping = static_cast<Mapping*>(context);
    munmap(mapping->address, mapping->num_bytes);
    delete mapping;
  }
  c10::DataPtr allocate(size_t num_bytes) override {
    void* address = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(address != MAP_FAILED, "vramcast: cannot map ", num_bytes, " bytes of host address space");
    return {address, new Mapping{address, num_bytes}, &unmap, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t count) const override { memcpy(to, from, count); }
};
static LazyHostAllocator lazy_host_allocator;

static Block* block_of(const at::Tensor& tensor) {
  const auto& pointer = tensor.unsafeGetTensorImpl()->unsafe_storage().data_ptr();
  return pointer.get_deleter() == &release_block ? static_cast<Block*>(pointer.get_context()) : nullptr;
}

static at::Tensor make_tensor(c10::Storage storage, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, caffe2::TypeMeta dtype,
                              bool on_gpu) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), DispatchKeySet(on_gpu ? DispatchKey::CUDA : DispatchKey::CPU), dtype);
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

static at::Tensor new_tensor(c10::IntArrayRef sizes, c10::IntArrayRef strides, caffe2::TypeMeta dtype, bool on_gpu) {
  const auto num_bytes = at::detail::computeStorageNbytes(sizes, strides, dtype.itemsize());
  c10::Allocator* allocator = &device_allocator;
  if (!on_gpu) allocator = num_bytes >= (64 << 10) ? static_cast<c10::Allocator*>(&lazy_host_allocator) : c10::GetCPUAllocator();
  if (on_gpu) recorder.describe(sizes, dtype);
  auto pointer = allocator->allocate(num_bytes);
  auto storage = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), num_bytes, std::move(pointer), allocator, /*resizable=*/true));
  return make_tensor(std::move(storage), sizes, strides, 0, dtype, on_gpu);
}

static std::vector<int64_t> dense_strides(c10::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (int64_t i = static_cast<int64_t>(sizes.size()) - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

static at::Tensor view_of(const at::Tensor& base, const at::Tensor& meta, bool on_gpu) {
  auto storage = base.storage();
  return make_tensor(std::move(storage), meta.sizes(), meta.strides(), meta.storage_offset(), meta.dtype(), on_gpu);
}

static at::Tensor meta_of(const at::Tensor& tensor) {
  auto* from = tensor.unsafeGetTensorImpl();
  if (from->is_wrapped_number() && tensor.device().is_cpu()) return tensor;  // a Python number stays one
  const auto num_bytes = from->unsafe_storage().nbytes();
  auto storage = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), num_bytes, c10::DataPtr(nullptr, c10::Device(c10::kMeta)), c10::GetAllocator(c10::kMeta), true));
  auto meta = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), DispatchKeySet(DispatchKey::Meta), from->dtype());
  meta.unsafeGetTensorImpl()->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  if (from->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  if (tensor.is_conj()) meta._set_conj(true);
  if (tensor.is_neg()) meta._set_neg(true);
  return meta;
}

static void resize(const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  auto* impl = tensor.unsafeGetTensorImpl();
  const auto needed = at::detail::computeStorageNbytes(sizes, strides, impl->dtype().itemsize(), impl->storage_offset());
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (needed > storage->nbytes()) {
    // The new memory is taken before the old is given back, as on the device.
    recorder.describe(sizes, impl->dtype());
    auto pointer = (tensor.is_cuda() ? static_cast<c10::Allocator*>(&device_allocator) : c10::GetCPUAllocator())->allocate(needed);
    storage->set_data_ptr_noswap(std::move(pointer));
    storage->set_nbytes(needed);
  }
  impl->set_sizes_and_strides(sizes, strides);
}

// ---------------------------------------------------------------------------------------------------------------- operators

enum class Kind : uint8_t { simulate, redispatch };

struct Operator {
  int32_t name = 0;
  Kind kind = Kind::simulate;
  bool is_copy = false;
  const Reduction* reduction = nullptr;
  const Surrogate* surrogate = nullptr;
  bool adds_bias = false;
  bool overwrites = false;              // writes every element of what it writes to, whatever was there
  bool uninitialised = false;           // its result has no contents yet
  bool is_gemm = false;                 // takes a cuBLAS handle, hence a workspace
  bool samples = false;                 // draws random numbers: integers among them are really drawn
  bool ranks = false;                   // picks by value (topk, argmax): with unknown values the pick is drawn at random
  int device_argument = -1;             // factories: which argument is the device
  std::vector<int> result_aliases;      // per result: the argument it aliases, or -1
  std::vector<bool> result_writes;      // per result: whether that alias is written to (in place, out=)
  std::vector<int> written_arguments;   // arguments written to
};

static std::mutex operators_mutex;
static std::unordered_map<const c10::FunctionSchema*, Operator> operators;

// Operators with a kernel of their own on CUDA but not on the CPU, and the other way round (read off torch's dispatch tables).
static bool has_cuda_kernel(const std::string& name, bool otherwise) {
  static const std::unordered_set<std::string> with = {"aten::_fused_rms_norm", "aten::_grouped_mm", "aten::_chunk_cat", "aten::convolution_backward"};
  static const std::unordered_set<std::string> without = {"aten::_stack", "aten::native_channel_shuffle", "aten::narrow_copy", "aten::pixel_unshuffle", "aten::pixel_shuffle"};
  if (with.count(name) || name.rfind("aten::_foreach_", 0) == 0) return true;
  return without.count(name) ? false : otherwise;
}

static const std::unordered_set<std::string> gemm_names = {
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::addmm_", "aten::addmv", "aten::dot", "aten::vdot", "aten::addr",
    "aten::_addmm_activation", "aten::addbmm", "aten::_scaled_mm", "aten::_int_mm", "aten::mv"};

static const std::unordered_set<std::string> ranking_names = {
    "aten::topk", "aten::sort", "aten::argmax", "aten::argmin", "aten::max", "aten::min", "aten::multinomial", "aten::kthvalue",
    "aten::median", "aten::mode"};

static Operator describe(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  Operator result;
  const auto full_name = schema.operator_name().name;
  const auto overload = schema.overload_name();
  result.name = recorder.intern(overload.empty() ? full_name : full_name + "." + overload);
  if (!op.hasKernelForDispatchKey(DispatchKey::Meta)) result.surrogate = find_surrogate(overload.empty() ? full_name : full_name + "." + overload);
  result.reduction = find_reduction(full_name, overload);
  result.is_copy = full_name == "aten::copy_";
  result.ranks = ranking_names.count(full_name) > 0;
  result.overwrites = full_name == "aten::fill_" || full_name == "aten::zero_";
  result.uninitialised = full_name.rfind("aten::empty", 0) == 0;
  result.adds_bias = full_name == "aten::addmm" && overload.empty();
  result.is_gemm = gemm_names.count(full_name) > 0;
  const bool has_kernel =
      has_cuda_kernel(full_name, op.hasKernelForDispatchKey(DispatchKey::CPU) || op.hasKernelForDispatchKey(DispatchKey::CUDA));
  const bool has_composite = op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
  if (has_composite && !has_kernel) result.kind = Kind::redispatch;
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias && alias->isWrite()) {
      result.written_arguments.push_back(i);
      if (arguments[i].name() == "out") result.overwrites = true;
    }
    if (arguments[i].name() == "device") result.device_argument = i;
    if (arguments[i].name() == "generator") result.samples = true;
  }
  for (const auto& ret : schema.returns()) {
    int aliased = -1;
    bool writes = false;
    if (const auto* alias = ret.alias_info()) {
      for (size_t i = 0; i < arguments.size(); ++i) {
        const auto* other = arguments[i].alias_info();
        if (other && other->beforeSets() == alias->beforeSets()) { aliased = i; break; }
      }
      writes = alias->isWrite();
    }
    result.result_aliases.push_back(aliased);
    result.result_writes.push_back(writes);
  }
  return result;
}

static const Operator& operator_info(const c10::OperatorHandle& op) {
  const std::lock_guard<std::mutex> lock(operators_mutex);
  const auto* key = &op.schema();
  auto found = operators.find(key);
  if (found == operators.end()) found = operators.emplace(key, describe(op)).first;
  return found->second;
}

template <typename Visitor>
static void for_each_tensor(const IValue& value, Visitor&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) if (tensor.defined()) visit(tensor);
  } else if (value.isList()) {
    for (const IValue& item : value.toListRef()) for_each_tensor(item, visit);
  }
}

// ---------------------------------------------------------------------------------------------------------------- known values

// Integers and booleans steer a program (routing, masks, lengths), so they are really computed while they are small; floating-point
// contents almost never do, except a few small ones (masks, loss scales, schedules).
constexpr int64_t max_integer_value_bytes = 1 << 20, max_float_value_bytes = 64 << 10;

static bool may_carry_values(const at::Tensor& tensor) {
  const auto num_bytes = static_cast<int64_t>(tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes());
  return num_bytes <= (c10::isIntegralType(tensor.scalar_type(), true) ? max_integer_value_bytes : max_float_value_bytes);
}

static at::Tensor host_view(const at::Tensor& bytes, const at::Tensor& like) {
  auto storage = bytes.storage();
  return make_tensor(std::move(storage), like.sizes(), like.strides(), like.storage_offset(), like.dtype(), false);
}

// The real contents of a tensor as a CPU tensor, or an undefined tensor if they are not known.
static at::Tensor known_values(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor.device().is_cpu() ? tensor : at::Tensor();
  if (tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes() == 0) {
    return make_tensor(c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::GetCPUAllocator(), true), tensor.sizes(), tensor.strides(), 0,
                       tensor.dtype(), false);
  }
  const auto* block = block_of(tensor);
  return block && block->values.defined() ? host_view(block->values, tensor) : at::Tensor();
}

static at::Tensor host_bytes(int64_t num_bytes) {
  const std::vector<int64_t> sizes = {num_bytes}, strides = {1};
  auto allocator = c10::GetCPUAllocator();
  auto pointer = allocator->allocate(num_bytes);
  if (num_bytes) memset(pointer.get(), 0, num_bytes);
  auto storage = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), num_bytes, std::move(pointer), allocator, true));
  return make_tensor(std::move(storage), sizes, strides, 0, caffe2::TypeMeta::Make<uint8_t>(), false);
}

struct BelowSimulation {
  c10::impl::ExcludeDispatchKeyGuard guard{DispatchKeySet(DispatchKey::Fake) | c10::autograd_dispatch_keyset |
                                           DispatchKeySet(DispatchKey::ADInplaceOrView) | c10::default_excluded_set};
};

static void set_values(const at::Tensor& tensor, const at::Tensor& values) {
  auto* block = block_of(tensor);
  if (!block) return;
  if (!block->values.defined()) block->values = host_bytes(tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes());
  BelowSimulation below;
  host_view(block->values, tensor).copy_(values);
}

static void begin_values(const at::Tensor& tensor) {
  auto* block = block_of(tensor);
  const auto num_bytes = tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes();
  const bool whole = static_cast<size_t>(tensor.numel()) * tensor.itemsize() == num_bytes;
  if (block && !block->values.defined() && whole && may_carry_values(tensor)) block->values = host_bytes(num_bytes);
}

static void forget_values(const at::Tensor& tensor) {
  if (auto* block = block_of(tensor)) block->values.reset();
}

// ---------------------------------------------------------------------------------------------------------------- simulation

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

// Runs the operator on the CPU with the known contents of its arguments; false when that is not possible.
static bool compute_values(const c10::OperatorHandle& op, const Operator& info, c10::ArrayRef<IValue> arguments, Stack& values) {
  bool all_known = true;
  auto known = [&](const at::Tensor& tensor) -> at::Tensor {
    auto host = known_values(tensor);
    if (!host.defined() && info.ranks && tensor.numel() <= (4 << 20)) {
      BelowSimulation below;
      return at::rand(tensor.sizes(), at::TensorOptions().dtype(at::kFloat));
    }
    if (!host.defined()) all_known = false;
    return host;
  };
  for (const auto& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined()) values.emplace_back(known(argument.toTensor()));
    else if (argument.isTensorList()) {
      c10::List<at::Tensor> hosts;
      for (const at::Tensor& tensor : argument.toTensorVector()) {
        hosts.push_back(known(tensor));
        if (!all_known) return false;
      }
      values.emplace_back(std::move(hosts));
    } else if (argument.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> hosts;
      for (const IValue& item : argument.toListRef()) {
        hosts.push_back(item.isTensor() && item.toTensor().defined() ? std::optional<at::Tensor>(known(item.toTensor())) : std::nullopt);
        if (!all_known) return false;
      }
      values.emplace_back(std::move(hosts));
    } else if (argument.isDevice()) values.emplace_back(c10::Device(c10::kCPU));
    else if (argument.isGenerator()) values.emplace_back();
    else values.emplace_back(argument);
    if (!all_known) return false;
  }
  try {
    BelowSimulation below;
    op.callBoxed(&values);
    return true;
  } catch (const c10::Error&) {
    return false;  // no CPU kernel: the contents stay unknown
  }
}

static bool worth_computing(const Operator& info, c10::ArrayRef<IValue> arguments, const std::vector<IValue>& results) {
  if (info.uninitialised) return false;
  bool small = false;
  for (const auto& result : results) for_each_tensor(result, [&](const at::Tensor& tensor) { small = small || may_carry_values(tensor); });
  for (const int i : info.written_arguments) for_each_tensor(arguments[i], [&](const at::Tensor& tensor) { small = small || may_carry_values(tensor); });
  if (!small || info.ranks) return small;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    if (info.overwrites && std::count(info.written_arguments.begin(), info.written_arguments.end(), static_cast<int>(i))) continue;
    bool known = true;
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.is_cuda()) {
        const auto* block = block_of(tensor);
        known = known && (tensor.numel() == 0 || (block && block->values.defined()) || (info.samples && !c10::isFloatingType(tensor.scalar_type())));
      }
    });
    if (!known) return false;
  }
  return true;
}

static void carry_values(const c10::OperatorHandle& op, const Operator& info, c10::ArrayRef<IValue> arguments, const std::vector<IValue>& results) {
  if (!worth_computing(info, arguments, results)) {
    for (const int i : info.written_arguments) for_each_tensor(arguments[i], [](const at::Tensor& tensor) { forget_values(tensor); });
    return;
  }
  // fill_(), random_() and out= overwrite a tensor whose contents are not known yet
  if (info.samples || info.overwrites) {
    for (const int i : info.written_arguments) for_each_tensor(arguments[i], [](const at::Tensor& tensor) { begin_values(tensor); });
  }
  Stack values;
  values.reserve(arguments.size());
  const bool computed = compute_values(op, info, arguments, values) && values.size() == results.size();
  for (size_t i = 0; i < results.size(); ++i) {
    const bool aliases = info.result_aliases.size() > i && info.result_aliases[i] >= 0;
    if (!computed || aliases) continue;  // written arguments share their host bytes with the values just computed
    if (results[i].isTensor() && results[i].toTensor().defined() && values[i].isTensor()) {
      const auto& tensor = results[i].toTensor();
      if (may_carry_values(tensor) && !(info.ranks && c10::isFloatingType(tensor.scalar_type()))) set_values(tensor, values[i].toTensor());
    }
    else if (results[i].isTensorList() && values[i].isTensorList()) {
      const auto tensors = results[i].toTensorVector(), hosts = values[i].toTensorVector();
      for (size_t j = 0; j < tensors.size() && j < hosts.size(); ++j) if (may_carry_values(tensors[j])) set_values(tensors[j], hosts[j]);
    }
  }
  if (!computed) for (const int i : info.written_arguments) for_each_tensor(arguments[i], [](const at::Tensor& tensor) { forget_values(tensor); });
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

// cuBLAS takes matrices that are dense along one of their two dimensions; others are copied first.
static bool needs_dense_copy(const at::Tensor& matrix) {
  if (matrix.dim() < 2) return false;
  const auto rows = matrix.size(-2), columns = matrix.size(-1), row_stride = matrix.stride(-2), column_stride = matrix.stride(-1);
  return !(column_stride == 1 && row_stride >= std::max<int64_t>(1, columns)) && !(row_stride == 1 && column_stride >= std::max<int64_t>(1, rows)) &&
      !matrix.is_contiguous();
}

// A product with a bias (one row, added by the kernel itself) goes through cuBLASLt.
static bool uses_lt(const Operator& info, c10::ArrayRef<IValue> arguments) {
  if (!info.adds_bias) return false;
  const auto& bias = arguments[0].toTensor();
  const auto& left = arguments[1].toTensor();
  const auto& right = arguments[2].toTensor();
  return bias.dim() == 1 && bias.is_contiguous() && bias.size(0) == right.size(1) && c10::isFloatingType(right.scalar_type()) &&
      left.size(0) > 1 && left.size(1) > 1 && right.size(1) > 1 && arguments[3].toScalar().toDouble() == 1.0;
}

static void simulate_gemm(const Operator& info, c10::ArrayRef<IValue> arguments) {
  std::vector<at::Tensor> copies;
  const size_t first = arguments.size() > 2 && arguments[2].isTensor() ? 1 : 0;  // addmm and baddbmm begin with what is added
  for (size_t i = first; i < first + 2 && i < arguments.size(); ++i) {
    if (!arguments[i].isTensor() || !needs_dense_copy(arguments[i].toTensor())) continue;
    const auto& matrix = arguments[i].toTensor();
    copies.push_back(new_tensor(matrix.sizes(), dense_strides(matrix.sizes()), matrix.dtype(), true));
  }
  recorder.take_gemm_workspace(uses_lt(info, arguments));
  while (!copies.empty()) copies.pop_back();
}

static void simulate(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const auto& info = operator_info(op);
  const auto below = keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::Fake);
  if (info.is_copy && (torch::jit::peek(*stack, 0, 3).toTensor().is_cuda() || torch::jit::peek(*stack, 1, 3).toTensor().is_cuda())) {
    const CurrentOperator current(recorder, info.name);
    simulate_copy(torch::jit::peek(*stack, 0, 3).toTensor(), torch::jit::peek(*stack, 1, 3).toTensor());
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
int64_t vramcast_alloc(int64_t num_bytes) { return recorder.alloc(num_bytes); }
void vramcast_free(int64_t id) { recorder.free(id); }
int32_t vramcast_begin_kernel(const char* name) { return recorder.begin_kernel(name); }
void vramcast_end_kernel(int32_t before) { recorder.end_kernel(before); }
void vramcast_mark(int64_t event) { recorder.events.push_back(event); }
int64_t vramcast_allocated() { return recorder.allocated_bytes; }
int64_t vramcast_peak_allocated() { return recorder.peak_allocated_bytes; }
int64_t vramcast_num_events() { return recorder.events.size(); }
const int64_t* vramcast_events() { return recorder.events.data(); }
int64_t vramcast_num_allocations() { return recorder.allocations.size(); }
const Allocation* vramcast_allocations() { return recorder.allocations.data(); }
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
