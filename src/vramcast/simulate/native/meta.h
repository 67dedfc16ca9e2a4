// Result shapes: the arguments become Meta tensors, torch's Meta kernel runs, and its result
// becomes tensors of the simulated device.
#pragma once
#include <ATen/ops/empty_strided.h>

#include <atomic>
#include <memory>
#include <unordered_map>

#include "arguments_key.h"
#include "deriving.h"
#include "work_list.h"

namespace vramcast {

static IValue to_meta(const IValue& value) {
  if (value.isTensor())
    return value.toTensor().defined() ? IValue(meta_of(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> metas;
    const auto items = value.toListRef();
    metas.reserve(items.size());
    for (const IValue& item : items) {
      const auto& tensor = item.toTensor();
      metas.push_back(tensor.defined() ? meta_of(tensor) : tensor);
    }
    return metas;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> metas;
    for (const IValue& item : value.toListRef()) {
      metas.push_back(item.isTensor() && item.toTensor().defined()
                          ? std::optional<at::Tensor>(meta_of(item.toTensor()))
                          : std::nullopt);
    }
    return metas;
  }
  if (value.isDevice()) return c10::Device(c10::kMeta);
  if (value.isGenerator()) return IValue();
  return value;
}

constexpr int64_t max_host_result_bytes = 1 << 30;

static at::Tensor host_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (const auto host = known_values(tensor); host.defined()) return host;
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           at::TensorOptions().dtype(tensor.scalar_type()))
      .fill_(as_read(tensor));
}

static IValue to_host(const IValue& value) {
  if (value.isTensor()) return host_of(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> hosts;
    for (const at::Tensor& tensor : value.toTensorVector()) hosts.push_back(host_of(tensor));
    return hosts;
  }
  if (value.isDevice()) return c10::Device(c10::kCPU);
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
  if (meta.sizes() != tensor.sizes() || meta.strides() != tensor.strides())
    resize(tensor, meta.sizes(), meta.strides());
}

static IValue to_result(const IValue& meta, const IValue* aliased, bool writes, bool on_gpu) {
  if (meta.isTensor()) {
    const auto& tensor = meta.toTensor();
    if (aliased && aliased->isTensor() && aliased->toTensor().defined()) {
      if (!writes) return view_of(aliased->toTensor(), tensor);
      finish_written(aliased->toTensor(), tensor);
      return *aliased;
    }
    return materialise(tensor, on_gpu);
  }
  if (meta.isTensorList()) {
    c10::List<at::Tensor> results;
    const auto metas = meta.toListRef();
    results.reserve(metas.size());
    for (const IValue& item : metas) {
      const auto& tensor = item.toTensor();
      if (aliased && aliased->isTensor())
        results.push_back(view_of(aliased->toTensor(), tensor));
      else
        results.push_back(materialise(tensor, on_gpu));
    }
    if (aliased && aliased->isTensorList()) return *aliased;
    return results;
  }
  return meta;
}

// Whether all lists have the same number of tensors of the same types and shapes, all of them on
// the GPU: then an operator that only writes to a list cannot fail, and takes no memory.
static bool are_alike(c10::ArrayRef<IValue> arguments) {
  const auto first = arguments[0].toListRef();
  if (first.empty()) return false;
  for (const auto& argument : arguments) {
    if (argument.isTensor() || argument.isComplexDouble()) return false;
    if (!argument.isList()) continue;
    const auto items = argument.toListRef();
    if (items.size() != first.size() || items[0].isComplexDouble()) return false;
    for (size_t i = 0; i < items.size() && items[i].isTensor(); ++i) {
      const auto &tensor = items[i].toTensor(), &like = first[i].toTensor();
      if (!tensor.defined() || !tensor.is_cuda() || tensor.layout() != at::kStrided ||
          !c10::isFloatingType(tensor.scalar_type()) || tensor.dtype() != like.dtype() ||
          tensor.sizes() != like.sizes())
        return false;
    }
  }
  return true;
}

// Whether their elements lie one after the other, too: then what is made of each tensor does.
static bool are_contiguous(c10::ArrayRef<IValue> arguments) {
  for (const auto& argument : arguments) {
    if (!argument.isTensorList()) continue;
    for (const IValue& item : argument.toListRef()) {
      const auto& tensor = item.toTensor();
      int64_t stride = 1;
      for (auto dim = tensor.dim() - 1; dim >= 0; --dim) {
        if (tensor.stride(dim) != stride) return false;
        stride *= std::max<int64_t>(tensor.size(dim), 1);
      }
    }
  }
  return true;
}

static int32_t (*load_more_meta_kernels)() = nullptr;

// For operators that have no Meta kernel at all: the kernel of the CPU runs, on what is known of
// the contents.
static bool run_on_host(const c10::OperatorHandle& op, c10::ArrayRef<IValue> arguments,
                        Stack& stack) {
  int64_t num_bytes = 0;
  for (const auto& argument : arguments)
    for_each_tensor(argument, [&](const at::Tensor& t) { num_bytes += t.numel() * t.itemsize(); });
  if (!op.hasKernelForDispatchKey(DispatchKey::CPU) || num_bytes > max_host_result_bytes)
    return false;
  stack.clear();
  for (const auto& argument : arguments) stack.push_back(to_host(argument));
  op.callBoxed(&stack);
  return true;
}

// Used even where torch's Meta kernels in Python are loaded, because their strides are not always
// those of a GPU.
static const ShapeRule* shape_rule_of(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return find_shape_rule(name.overload_name.empty() ? name.name
                                                    : name.name + "." + name.overload_name);
}

static void call_meta(const c10::OperatorHandle& op, c10::ArrayRef<IValue> arguments,
                      Stack& stack) {
  BelowSimulation below;
  if (const auto* rule = shape_rule_of(op)) {
    auto results = (*rule)(stack);
    stack.clear();
    for (auto& result : results.tensors) stack.emplace_back(std::move(result));
    return;
  }
  const Stack metas = stack;
  try {
    return op.callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    if (!load_more_meta_kernels && !run_on_host(op, arguments, stack)) throw;
    if (!load_more_meta_kernels) return;
  }
  load_more_meta_kernels();
  load_more_meta_kernels = nullptr;
  stack = metas;
  try {
    op.callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    if (!run_on_host(op, arguments, stack)) throw;
  }
}

// torch's own Meta kernels look at nothing but what is in the key.
static bool make_shapes_key(const Operator& info, c10::ArrayRef<IValue> arguments,
                            ArgumentsKey& key) {
  if (!info.is_of_torch) return false;
  for (const auto& argument : arguments) {
    if (argument.isTensor())
      key.add_shape(argument.toTensor());
    else
      key.add(argument);
  }
  return key.is_complete;
}

// What an operator returns, as Meta tensors, and what it then does.
struct Described {
  Stack metas;
  bool is_kept = false;  // for the same operator with such arguments
  mutable std::atomic<const Work*> work = nullptr;

  explicit Described(Stack metas = {}) : metas(std::move(metas)) {}
  ~Described() { delete work.load(); }
  void remember(const Work& done) const {
    const Work* nothing = nullptr;
    const auto* fresh = new Work(done);
    if (!work.compare_exchange_strong(nothing, fresh)) delete fresh;  // another thread was first
  }
};
using Metas = std::shared_ptr<const Described>;

// From its Meta kernel, or as that said before.
static Metas meta_results(const c10::OperatorHandle& op, const Operator& info,
                          c10::ArrayRef<IValue> arguments) {
  // never destroyed: threads may end after the program
  static auto& known = *new ByArguments<Metas>();
  ArgumentsKey key(&info);
  const bool has_key = make_shapes_key(info, arguments, key);
  if (has_key)
    if (auto found = known.find(key)) return std::move(*found);
  auto described = std::make_shared<Described>();
  auto& metas = described->metas;
  metas.reserve(arguments.size());
  for (const auto& argument : arguments) metas.push_back(to_meta(argument));
  call_meta(op, arguments, metas);
  if (has_key) {
    described->is_kept = true;
    known.put(key, described);
  }
  return described;
}

// Nothing where it only writes to lists of tensors that are alike; where it makes a list of them,
// the first one shows what they are like. An optimizer's update has one Meta kernel, which does
// nothing and is in Python: loading that takes longer than many a step.
static Metas described_results(const c10::OperatorHandle& op, const Operator& info,
                               c10::ArrayRef<IValue> arguments) {
  static const auto nothing = std::make_shared<const Described>();
  if (info.is_whole_update || (info.updates_list && are_alike(arguments))) return nothing;
  if (info.maps_list && are_alike(arguments) && are_contiguous(arguments))
    return std::make_shared<const Described>(Stack(1, arguments[0]));
  // index_add of no rows: torch's Meta kernel looks at the first
  if (info.names_rows && info.adds_up && arguments[2].toTensor().numel() == 0)
    return std::make_shared<const Described>(Stack(1, arguments[0]));
  return meta_results(op, info, arguments);
}

}  // namespace vramcast
