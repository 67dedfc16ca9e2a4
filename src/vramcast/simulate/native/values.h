// The real contents of simulated tensors, where they are known.
#pragma once
#include <ATen/ops/copy.h>
#include <ATen/ops/rand.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "drawing.h"
#include "operators.h"

namespace vramcast {

// Integers and booleans decide what a program does (routing, masks, lengths), so small ones are
// really computed. Floating-point contents rarely do: only very small ones are computed (masks,
// loss scales, schedules).
constexpr int64_t max_integer_value_bytes = 16 << 20, max_float_value_bytes = 64 << 10,
                  max_drawn_float_bytes = 16 << 20;
// The floating-point tensors of a list: a longer one is an optimizer's.
constexpr int64_t max_listed_value_bytes = 1 << 20;
// A small tensor that is expanded may have any number of elements: more are not gone through.
constexpr int64_t max_computed_elements = 64 << 20, max_drawn_elements = 4 << 20;

static bool may_carry_values(const at::Tensor& tensor) {
  const auto num_bytes =
      static_cast<int64_t>(tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes());
  return num_bytes <= (c10::isIntegralType(tensor.scalar_type(), true) ? max_integer_value_bytes
                                                                       : max_float_value_bytes);
}

// Random numbers are compared to make masks. Not the first contents of parameters: nothing depends
// on them.
static bool may_be_drawn(const at::Tensor& tensor) {
  if (!c10::isFloatingType(tensor.scalar_type())) return may_carry_values(tensor);
  const auto num_bytes = tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes();
  return !tensor.requires_grad() && num_bytes <= static_cast<size_t>(max_drawn_float_bytes);
}

static at::Tensor host_view(const at::Tensor& bytes, const at::Tensor& like) {
  auto storage = bytes.storage();
  return make_tensor(std::move(storage), like.sizes(), like.strides(), like.storage_offset(),
                     like.dtype(), false);
}

static at::Tensor host_bytes(int64_t num_bytes) {
  const std::vector<int64_t> sizes = {num_bytes}, strides = {1};
  return new_tensor(sizes, strides, caffe2::TypeMeta::Make<uint8_t>(), false);
}

static void hold_values(Block& block) {
  block.values = std::make_shared<Contents>();
  block.values->bytes = host_bytes(block.num_bytes);
}

// To be written to.
static const at::Tensor& own_values(Block& block) {
  if (block.values.use_count() > 1) {
    const auto bytes = block.values->read();
    hold_values(block);
    memcpy(block.values->bytes.mutable_data_ptr(), bytes.const_data_ptr(), bytes.nbytes());
  }
  return block.values->read();
}

// The real contents of a tensor as a CPU tensor, or an undefined tensor if they are not known.
static at::Tensor known_values(const at::Tensor& tensor, bool is_written = false) {
  if (!tensor.is_cuda()) return tensor.device().is_cpu() ? tensor : at::Tensor();
  if (tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes() == 0) {
    return make_tensor(
        c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::GetCPUAllocator(), true),
        tensor.sizes(), tensor.strides(), 0, tensor.dtype(), false);
  }
  auto* block = block_of(tensor);
  if (!block || !block->values) return {};
  return host_view(is_written ? own_values(*block) : block->values->read(), tensor);
}

struct BelowSimulation {
  c10::impl::ExcludeDispatchKeyGuard guard{
      DispatchKeySet(DispatchKey::Fake) | c10::autograd_dispatch_keyset |
      DispatchKeySet(DispatchKey::ADInplaceOrView) | c10::default_excluded_set};
};

// Before a part is written. Integers stay zero: a list of them is often written piece by piece.
static void fill_with_typical(const Block& block, const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  if (!c10::isFloatingType(type) && !block.typical.derived) return;
  auto bytes = block.values->bytes.storage();
  const std::vector<int64_t> sizes = {static_cast<int64_t>(bytes.nbytes() / tensor.itemsize())};
  make_tensor(std::move(bytes), sizes, {std::vector<int64_t>{1}}, 0, tensor.dtype(), false)
      .fill_(block.typical.number);
}

static bool is_whole(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel()) * tensor.itemsize() ==
         tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes();
}

static void note_write(const at::Tensor& tensor) {
  if (auto* block = block_of(tensor)) block->last_write = ++num_writes;
}

// Whether one is the other's bytes, which lie together.
static bool is_laid_out_as(const at::Tensor& tensor, const at::Tensor& values) {
  return values.is_cpu() && values.layout() == at::kStrided && values.dtype() == tensor.dtype() &&
         values.sizes() == tensor.sizes() && values.strides() == tensor.strides() &&
         tensor.is_non_overlapping_and_dense() && values.is_conj() == tensor.is_conj() &&
         values.is_neg() == tensor.is_neg();
}

static void set_values(const at::Tensor& tensor, const at::Tensor& values) {
  auto* block = block_of(tensor);
  if (!block) return;
  block->drawn = block->ranked = false;
  block->last_write = ++num_writes;
  BelowSimulation below;
  const bool is_all = is_whole(tensor) && tensor.is_non_overlapping_and_dense();
  if (!block->values || is_all) {
    hold_values(*block);
    if (!is_all) fill_with_typical(*block, tensor);
  }
  const auto& bytes = own_values(*block);
  if (!is_laid_out_as(tensor, values)) {
    host_view(bytes, tensor).copy_(values);
    return;
  }
  const auto begin = tensor.storage_offset() * tensor.itemsize();
  memmove(static_cast<char*>(bytes.mutable_data_ptr()) + begin, values.const_data_ptr(),
          tensor.numel() * tensor.itemsize());
}

static void begin_values(const at::Tensor& tensor, bool draws) {
  auto* block = block_of(tensor);
  const bool may = draws ? may_be_drawn(tensor) : may_carry_values(tensor);
  if (block && draws && is_whole(tensor)) block->values = nullptr;  // they are overwritten
  // of integers also a part, as in set_values()
  const bool is_begun = is_whole(tensor) ||
                        (!draws && c10::isIntegralType(tensor.scalar_type(), false));
  if (block && !block->values && is_begun && may) {
    hold_values(*block);
    if (!is_whole(tensor)) fill_with_typical(*block, tensor);
    block->drawn = draws && c10::isFloatingType(tensor.scalar_type());
  }
}

// A tensor of one number, to a few places of which others are written: a mask of classes.
static bool is_uniform(const at::Tensor& tensor) {
  const auto* block = block_of(tensor);
  return block && !block->values && block->typical.sure &&
         block->num_bytes <= max_integer_value_bytes;
}
static void begin_uniform(const at::Tensor& tensor) {
  if (!is_uniform(tensor)) return;
  auto* block = block_of(tensor);
  hold_values(*block);
  fill_with_typical(*block, tensor);
}

static void forget_values(const at::Tensor& tensor) {
  auto* block = block_of(tensor);
  if (!block) return;
  block->values.reset();
  block->drawn = block->ranked = false;
  block->last_write = ++num_writes;
  block->typical = healthy_now();
}

// Once somebody asks for them, or at once where they are a part of a tensor. False where the
// numbers cannot be told.
static bool draw_as_gpu(Draws draws, c10::ArrayRef<IValue> arguments, const Draw& draw,
                        const at::Tensor& host) {
  if (!host.is_contiguous() || host.scalar_type() == at::kDouble) return false;
  const auto write = numbers_of(draws, arguments, draw);
  if (!write) return false;
  const auto& tensor = arguments[0].toTensor();
  auto* block = tensor.is_cuda() && is_whole(tensor) ? block_of(tensor) : nullptr;
  if (!block) {
    write(host);
    return true;
  }
  block->values->write = [=] {
    BelowSimulation below;
    write(host);
  };
  return true;
}

// Runs the operator on the CPU with the known contents of its arguments, or where it ranks with
// numbers that are drawn; false when that is not possible.
static bool compute_values(const c10::OperatorHandle& op, const Operator& info,
                           c10::ArrayRef<IValue> arguments, const std::optional<Draw>& draw,
                           Stack& values, bool& drawn) {
  bool all_known = true;
  auto known = [&](const at::Tensor& tensor, bool is_written = false) -> at::Tensor {
    auto host = known_values(tensor, is_written);
    if (!host.defined() && info.ranks && tensor.numel() <= max_drawn_elements) {
      BelowSimulation below;
      const DrawnByGpu gpu;
      drawn = true;
      return at::rand(tensor.sizes(), at::TensorOptions().dtype(at::kFloat));
    }
    if (!host.defined()) all_known = false;
    return host;
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    const bool is_written = info.writes_to(i);
    if (argument.isTensor() && argument.toTensor().defined())
      values.emplace_back(known(argument.toTensor(), is_written));
    else if (argument.isTensorList()) {
      c10::List<at::Tensor> hosts;
      for (const at::Tensor& tensor : argument.toTensorVector()) {
        hosts.push_back(known(tensor, is_written));
        if (!all_known) return false;
      }
      values.emplace_back(std::move(hosts));
    } else if (argument.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> hosts;
      for (const IValue& item : argument.toListRef()) {
        hosts.push_back(item.isTensor() && item.toTensor().defined()
                            ? std::optional<at::Tensor>(known(item.toTensor()))
                            : std::nullopt);
        if (!all_known) return false;
      }
      values.emplace_back(std::move(hosts));
    } else if (argument.isDevice())
      values.emplace_back(c10::Device(c10::kCPU));
    else if (argument.isGenerator())
      values.emplace_back();
    else
      values.emplace_back(argument);
    if (!all_known) return false;
  }
  try {
    BelowSimulation below;
    if (draw && info.draws == Draws::coins_each) {
      const auto& host = values[0].toTensor();
      host.copy_(draw_shares_in_fours(*draw, host.sizes()).le(values[1].toTensor()));
      values.resize(1);
      return true;
    }
    if (draw && draw_as_gpu(info.draws, arguments, *draw, values[0].toTensor())) {
      values.resize(1);
      return true;
    }
    std::optional<DrawnByGpu> gpu;
    if (info.samples) gpu.emplace();
    op.callBoxed(&values);
    return true;
  } catch (const c10::Error&) {
    return false;  // no CPU kernel: the contents stay unknown
  }
}

static bool has_long_list(c10::ArrayRef<IValue> arguments) {
  for (const auto& argument : arguments) {
    if (!argument.isTensorList()) continue;
    int64_t num_bytes = 0;
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.is_floating_point()) num_bytes += tensor.numel() * tensor.itemsize();
    });
    if (num_bytes > max_listed_value_bytes) return true;
  }
  return false;
}

static bool worth_computing(const Operator& info, c10::ArrayRef<IValue> arguments,
                            const std::vector<IValue>& results) {
  if (info.uninitialised || has_long_list(arguments)) return false;
  bool small = false;
  for (const auto& result : results)
    for_each_tensor(result,
                    [&](const at::Tensor& tensor) { small = small || may_carry_values(tensor); });
  for (const int i : info.written_arguments)
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      small = small || may_carry_values(tensor) || (info.scatters && is_uniform(tensor)) ||
              (info.samples && may_be_drawn(tensor));
    });
  if (!small || info.ranks) return small;
  const bool makes_floats = !info.samples && !results.empty() && results[0].isTensor() &&
                            results[0].toTensor().defined() &&
                            c10::isFloatingType(results[0].toTensor().scalar_type());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    if (info.overwrites && info.writes_to(i)) continue;
    bool known = true;
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.is_cuda()) {
        const auto* block = block_of(tensor);
        known = known && tensor.numel() <= max_computed_elements &&
                !(makes_floats && block && block->drawn) &&
                (tensor.numel() == 0 || (block && block->values) ||
                 (info.scatters && is_uniform(tensor)) ||
                 (info.samples && may_be_drawn(tensor)));
      }
    });
    if (!known) return false;
  }
  return true;
}

}  // namespace vramcast
