// t and transpose, of which steps have as many as of matrix products; empty_like and zeros_like, of
// which the states of optimizers and many results are made; and parameters that .cuda() sends.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include "deriving.h"
#include "scratch.h"
#include "work.h"

namespace vramcast {

// They go by three operators to as_strided, which is all that takes time on the host.
// Nothing for what they do with fewer dimensions, and outside of the device.
static at::Tensor transposed(c10::ArrayRef<IValue> arguments) {
  const auto& tensor = arguments[0].toTensor();
  const auto dims = tensor.dim();
  int64_t one = 0, other = 1;
  if (arguments.size() == 3) {
    one = arguments[1].toInt() + (arguments[1].toInt() < 0 ? dims : 0);
    other = arguments[2].toInt() + (arguments[2].toInt() < 0 ? dims : 0);
  } else if (dims != 2) {
    return {};
  }
  const auto is_dim = [&](int64_t dim) { return 0 <= dim && dim < dims; };
  if (!tensor.is_cuda() || tensor.layout() != at::kStrided || one == other || !is_dim(one) ||
      !is_dim(other))
    return {};
  static const auto name = recorder.intern("aten::as_strided");
  c10::DimVector sizes(tensor.sizes()), strides(tensor.strides());
  std::swap(sizes[one], sizes[other]);
  std::swap(strides[one], strides[other]);
  auto view = view_of(tensor, tensor.dtype(), sizes, strides, tensor.storage_offset());
  work_log.add({0, 0, {0, 0, 0, 0}, name, -1, forward, no_kernel});
  return view;
}

// Whether it is dense, and a result like it has its strides and type, and is on the GPU. The first
// arguments after it are type, layout, device and whether it is pinned.
static bool is_alike(const at::Tensor& tensor, c10::ArrayRef<IValue> arguments,
                     const IValue& format) {
  const auto is_own = [](const IValue& argument, const auto& asks) {
    return argument.isNone() || asks(argument);
  };
  const auto asks_own_type = [&](const IValue& t) {
    return t.toScalarType() == tensor.scalar_type();
  };
  return tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense() &&
         !tensor.is_quantized() && is_own(arguments[1], asks_own_type) &&
         is_own(arguments[2], [](const IValue& it) { return it.toLayout() == at::kStrided; }) &&
         is_own(arguments[3], [](const IValue& device) { return device.toDevice().is_cuda(); }) &&
         is_own(arguments[4], [](const IValue& pinned) { return !pinned.toBool(); }) &&
         is_own(format, [](const IValue& given) {
           return given.toMemoryFormat() == at::MemoryFormat::Preserve;
         });
}

static at::Tensor empty_alike(const at::Tensor& tensor) {
  static const auto name = recorder.intern("aten::empty_strided");
  auto made = new_tensor(tensor.sizes(), tensor.strides(), tensor.dtype(), true);
  work_log.add({0, 0, {0, 0, 0, 0}, name, -1, forward, no_kernel});
  return made;
}

// All that empty_like does is empty_strided, and zeros_like zero_ after it.
static at::Tensor new_like(const Operator& info, c10::ArrayRef<IValue> arguments) {
  const auto& tensor = arguments[0].toTensor();
  if (!tensor.is_cuda() || !is_alike(tensor, arguments, arguments[5])) return {};
  static const auto& zero = operator_info(
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::zero_", ""));
  const CurrentOperator current(recorder, info.name);
  auto made = empty_alike(tensor);
  if (info.uninitialised) return made;
  if (may_carry_values(made))
    begin_values(made, false);
  else
    set_typical(made, {0, true, true});
  const std::vector<IValue> written = {made};
  note_work(zero, written, written);
  return made;
}

// From the host, without a change of type: all that _to_copy does is empty_strided and copy_.
static at::Tensor sent(const Operator& info, c10::ArrayRef<IValue> arguments) {
  const auto& tensor = arguments[0].toTensor();
  if (!tensor.is_cpu() || arguments[3].isNone() || tensor.is_conj() || tensor.is_neg() ||
      !is_alike(tensor, arguments, arguments[6]))
    return {};
  static const auto& copy = operator_info(
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""));
  const CurrentOperator current(recorder, info.name);
  auto made = empty_alike(tensor);
  simulate_copy(made, tensor, arguments[5].toBool());
  note_copy(copy, made, tensor, arguments[5].toBool());
  return made;
}

static at::Tensor new_zero_tensor(c10::ArrayRef<IValue> arguments) {
  static at::native::ZeroTensorAllocator allocator(device_zero);
  const auto& type = arguments[1];
  return at::detail::empty_generic(
      arguments[0].toIntVector(), &allocator,
      DispatchKeySet(DispatchKey::CUDA) | DispatchKeySet(DispatchKey::ZeroTensor),
      type.isNone() ? at::kFloat : type.toScalarType(), std::nullopt);
}

// What can be made without the operators that torch goes through.
static at::Tensor made_by_hand(const Operator& info, c10::ArrayRef<IValue> arguments) {
  if (info.makes_zero_tensor && arguments[3].isDevice() && arguments[3].toDevice().is_cuda())
    return new_zero_tensor(arguments);
  if (info.transposes) return transposed(arguments);
  if (info.sends) return sent(info, arguments);
  return info.makes_alike ? new_like(info, arguments) : at::Tensor();
}

}  // namespace vramcast
