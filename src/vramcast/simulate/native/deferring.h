// What is made of random numbers, element by element or by sums: worked out on the host as soon as
// somebody asks. Masks, cells and lengths are made of it, and these decide what a program does.
#pragma once
#include "values.h"

namespace vramcast {

constexpr int64_t max_deferred_bytes = 64 << 20, max_deferred_elements = 16 << 20,
                  max_deferred_host_elements = 4096, max_deferred_depth = 100,
                  max_deferred_products = 256 << 20, fewest_deferred_integers = 4096,
                  corner_size = 2;
// What was worked out costs time: more is left alone.
constexpr int64_t most_deferred_bytes = int64_t{4} << 30;
static std::atomic<int64_t> deferred_bytes_left = most_deferred_bytes;

// A tensor's part of what its storage contains, or a number that is every element.
struct Source {
  std::shared_ptr<Contents> contents;
  at::Tensor host;
  c10::DimVector sizes, strides;
  int64_t offset;
  caffe2::TypeMeta type;

  at::Tensor view_of(const at::Tensor& bytes) const {
    auto storage = bytes.storage();
    return make_tensor(std::move(storage), sizes, strides, offset, type, false);
  }
  at::Tensor read() const {
    return host.defined() ? host : view_of(contents->read());
  }
  at::Tensor corner() const {
    if (contents && contents->corner && offset == 0)
      if (auto found = contents->corner(sizes, strides); found.defined()) return found;
    auto found = read();
    for (int64_t i = 0; i < found.dim(); ++i)
      if (found.size(i) > corner_size) found = found.narrow(i, 0, corner_size);
    return found;
  }
};

static std::optional<Source> source_of(const at::Tensor& tensor, bool is_overwritten) {
  if (tensor.layout() != at::kStrided || tensor.is_conj() || tensor.is_neg() ||
      tensor.requires_grad() || tensor.numel() > max_deferred_elements)
    return std::nullopt;
  Source source{{}, {}, c10::DimVector(tensor.sizes()), c10::DimVector(tensor.strides()),
                tensor.storage_offset(), tensor.dtype()};
  BelowSimulation below;
  if (tensor.is_cpu()) {
    if (tensor.numel() > max_deferred_host_elements) return std::nullopt;
    source.host = tensor.unsafeGetTensorImpl()->is_wrapped_number() ? tensor : tensor.clone();
    return source;
  }
  auto* block = tensor.is_cuda() ? block_of(tensor) : nullptr;
  if (!block || block->ranked) return std::nullopt;
  if (is_overwritten && is_whole(tensor)) return source;
  if (block->values && block->values->depth < max_deferred_depth) {
    source.contents = block->values;
  } else if (block->typical.sure && !block->values && c10::isFloatingType(tensor.scalar_type())) {
    source.host = at::full({}, block->typical.number, at::TensorOptions().dtype(source.type))
                      .expand(tensor.sizes());
  } else {
    return std::nullopt;
  }
  return source;
}

// An operator and what its arguments contain now. It keeps no tensor of the GPU alive.
struct Recipe {
  c10::OperatorHandle op;
  Compute compute;
  Stack arguments;              // what stands in them for a tensor is `here`
  std::vector<Source> sources;  // of the tensors, one after the other
  bool any_known = false;

  int64_t depth() const {
    int64_t most = 0;
    for (const auto& source : sources)
      if (source.contents) most = std::max(most, source.contents->depth);
    return most + 1;
  }
  // With another tensor for the one that is written to.
  at::Tensor run(const at::Tensor& written, size_t written_source, bool corner_only = false) const {
    Stack stack;
    size_t next = 0;
    const auto number = [&] {
      const auto at = next++;
      if (written.defined() && at == written_source) return written;
      return corner_only ? sources[at].corner() : sources[at].read();
    };
    for (const auto& argument : arguments) {
      if (argument.isTensor() && argument.toTensor().defined()) {
        stack.emplace_back(number());
      } else if (argument.isTensorList()) {
        c10::List<at::Tensor> hosts;
        for (size_t i = 0; i < argument.toListRef().size(); ++i) hosts.push_back(number());
        stack.emplace_back(std::move(hosts));
      } else if (argument.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> hosts;
        for (const IValue& item : argument.toListRef())
          hosts.push_back(item.isTensor() ? std::optional(number()) : std::nullopt);
        stack.emplace_back(std::move(hosts));
      } else {
        stack.push_back(argument);
      }
    }
    if (compute)
      compute(stack);
    else
      op.callBoxed(&stack);
    return stack[0].toTensor();
  }
};

// Nothing where some of it is not known.
static std::optional<Recipe> recipe_of(const c10::OperatorHandle& op, const Operator& info,
                                       c10::ArrayRef<IValue> arguments) {
  static const auto here = [] {
    BelowSimulation below;
    return at::empty({0}, at::TensorOptions().dtype(at::kByte));
  }();
  Recipe recipe{op, info.on_host->compute, {}, {}};
  for (size_t i = 0; i < arguments.size(); ++i) {
    bool is_known = true;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      const bool is_overwritten = (info.overwrites || info.is_copy) && info.writes_to(i);
      auto source = is_known ? source_of(tensor, is_overwritten) : std::nullopt;
      is_known = source.has_value();
      if (!is_known) return;
      recipe.any_known = recipe.any_known || source->contents;
      recipe.sources.push_back(std::move(*source));
    });
    if (!is_known) return std::nullopt;
    const auto& argument = arguments[i];
    if (argument.isTensor() && argument.toTensor().defined()) {
      recipe.arguments.emplace_back(here);
    } else if (argument.isTensorList()) {
      recipe.arguments.emplace_back(
          c10::List<at::Tensor>(std::vector<at::Tensor>(argument.toListRef().size(), here)));
    } else if (argument.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> items;
      for (const IValue& item : argument.toListRef())
        items.push_back(item.isTensor() && item.toTensor().defined() ? std::optional(here)
                                                                     : std::nullopt);
      recipe.arguments.emplace_back(std::move(items));
    } else if (argument.isDevice()) {
      recipe.arguments.emplace_back(c10::Device(c10::kCPU));
    } else {
      recipe.arguments.push_back(argument);
    }
  }
  return recipe.any_known ? std::optional(std::move(recipe)) : std::nullopt;
}

// A product that takes long on the host.
static bool is_long(const Operator& info, c10::ArrayRef<IValue> arguments,
                    const at::Tensor& result) {
  if (!info.is_laborious) return false;
  const auto& matrix = arguments[info.is_gemm ? info.first_matrix : 0].toTensor();
  return matrix.dim() == 0 || result.numel() * matrix.size(-1) > max_deferred_products;
}

// As its bytes, where the result of an operator lies as it is to.
static void take(Contents& contents, const at::Tensor& place, const at::Tensor& made) {
  const auto& storage = made.storage();
  const bool is_alike = made.sizes() == place.sizes() && made.strides() == place.strides() &&
                        made.dtype() == place.dtype() && made.storage_offset() == 0 &&
                        place.storage_offset() == 0 && storage.use_count() == 1 &&
                        storage.nbytes() == contents.bytes.nbytes();
  if (!is_alike) return void(place.copy_(made));
  auto taken = storage;
  const std::vector<int64_t> sizes = {contents.bytes.numel()}, strides = {1};
  contents.bytes = make_tensor(std::move(taken), sizes, strides, 0, contents.bytes.dtype(), false);
}

// Of what is made element by element.
static auto corner_by(std::shared_ptr<const Recipe> recipe, const Source& to, bool writes) {
  // kept: what is used twice at every depth would be worked out over and over
  return [=, found = at::Tensor()](at::IntArrayRef sizes, at::IntArrayRef strides) mutable {
    if (sizes != to.sizes || strides != to.strides) return at::Tensor();
    if (found.defined()) return found;
    BelowSimulation below;
    auto corner = c10::DimVector(sizes);
    for (auto& size : corner) size = std::min(size, corner_size);
    try {
      const auto place = writes ? at::empty(corner, at::TensorOptions().dtype(to.type)) : found;
      found = recipe->run(place, 0, true);
    } catch (const c10::Error&) {  // the CPU has no kernel for it
    }
    return found;
  };
}

// What the result will contain; to be asked before its old contents are forgotten.
static std::shared_ptr<Contents> later(const c10::OperatorHandle& op, const Operator& info,
                                       c10::ArrayRef<IValue> arguments, const at::Tensor& result) {
  const auto* block = block_of(result);
  if (!block || block->num_bytes > max_deferred_bytes || is_long(info, arguments, result))
    return nullptr;
  bool any_known = false;  // of most operators nothing is: that is seen before anything is copied
  for (const auto& argument : arguments)
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      const auto* other = tensor.is_cuda() && tensor.has_storage() ? block_of(tensor) : nullptr;
      any_known = any_known || (other && other->values);
    });
  auto found = any_known ? recipe_of(op, info, arguments) : std::nullopt;
  if (!found) return nullptr;
  const bool writes = !info.written_arguments.empty();
  size_t place = 0;
  for (int i = 0; writes && i < info.written_arguments[0]; ++i)
    for_each_tensor(arguments[i], [&](const at::Tensor&) { ++place; });
  auto contents = std::make_shared<Contents>(host_bytes(block->num_bytes));
  contents->depth = found->depth();
  Source to{{}, {}, c10::DimVector(result.sizes()), c10::DimVector(result.strides()),
            result.storage_offset(), result.dtype()};
  const auto recipe = std::make_shared<const Recipe>(std::move(*found));
  contents->write = [=, self = contents.get(), number = block->typical.number,
                     is_float = c10::isFloatingType(result.scalar_type())] {
    BelowSimulation below;
    if (is_float) deferred_bytes_left -= self->bytes.nbytes();
    const auto place_of = to.view_of(self->bytes);
    try {
      if (!writes) return take(*self, place_of, recipe->run({}, 0));
      if (const auto& before = recipe->sources[place].contents)
        memcpy(self->bytes.mutable_data_ptr(), before->read().const_data_ptr(),
               self->bytes.nbytes());
      recipe->run(place_of, place);
    } catch (const c10::Error&) {
      place_of.fill_(number);  // the CPU has no kernel for it
    }
  };
  if (is_whole(result) && (info.is_copy || (info.pointwise && !writes)))
    contents->corner = corner_by(recipe, to, writes);
  return contents;
}

static std::shared_ptr<Contents> deferred(const c10::OperatorHandle& op, const Operator& info,
                                          c10::ArrayRef<IValue> arguments,
                                          const at::Tensor& result) {
  const bool may = deferred_bytes_left > 0 && c10::isFloatingType(result.scalar_type());
  return may ? later(op, info, arguments, result) : nullptr;
}

// Whole numbers are always known, but many of them are worked out only if somebody asks: nobody
// looks at most positions and masks. False where they have to be worked out at once.
static bool defer_integers(const c10::OperatorHandle& op, const Operator& info,
                           c10::ArrayRef<IValue> arguments, const at::Tensor& result) {
  if (result.numel() < fewest_deferred_integers || computing.is_on || !is_whole(result) ||
      !c10::isIntegralType(result.scalar_type(), true) || !may_carry_values(result))
    return false;
  auto contents = later(op, info, arguments, result);
  if (!contents) return false;
  auto* block = block_of(result);
  block->values = std::move(contents);
  block->drawn = block->ranked = false;
  block->guessed = is_any_guess(arguments);
  block->last_write = ++num_writes;
  return true;
}

// The first of many numbers that are not all the same, of which the others need not be worked out.
static std::optional<double> first_of_many(const Block* block, const at::Tensor& tensor) {
  if (!block || !block->values || !block->values->corner || tensor.storage_offset() != 0)
    return std::nullopt;
  const auto corner = block->values->corner(tensor.sizes(), tensor.strides());
  if (!corner.defined()) return std::nullopt;
  BelowSimulation below;
  const auto numbers = corner.to(at::kDouble).contiguous();
  const auto* first = numbers.const_data_ptr<double>();
  const bool differ = std::any_of(first, first + numbers.numel(),
                                  [&](double one) { return one != *first; });
  return differ ? std::optional(*first) : std::nullopt;
}

// Numbers that are too many to be told by what they are; they are kept as random ones are.
static void set_computed(const at::Tensor& tensor, const at::Tensor& values) {
  auto* block = block_of(tensor);
  if (!block) return;
  const bool is_held = block->values || may_carry_values(tensor);
  if (!is_held && block->num_bytes > max_deferred_bytes) return;
  set_values(tensor, values);
  block->drawn = !is_held;
  block->guessed = kernel_depth() > 0 && kernel_has_guessed;
}

static void note_guess(const at::Tensor& tensor) {
  if (auto* block = block_of(tensor)) block->guessed = true;
}

// The positions of a mask's true elements, found as soon as somebody asks. False where they have to
// be found at once.
static bool set_positions(const at::Tensor& tensor, const at::Tensor& mask) {
  auto* block = block_of(tensor);
  auto source = source_of(mask, false);
  if (!block || block->num_bytes > max_deferred_bytes || !source || !source->contents)
    return false;
  auto contents = std::make_shared<Contents>(host_bytes(block->num_bytes));
  contents->depth = source->contents->depth + 1;
  Source to{{}, {}, c10::DimVector(tensor.sizes()), c10::DimVector(tensor.strides()),
            tensor.storage_offset(), tensor.dtype()};
  contents->write = [to, from = std::move(*source), bytes = contents->bytes] {
    BelowSimulation below;
    to.view_of(bytes).copy_(at::nonzero(from.read()));
  };
  block->drawn = !may_carry_values(tensor);
  block->guessed = is_guess(mask);
  block->values = std::move(contents);
  return true;
}

static void set_deferred(const at::Tensor& tensor, std::shared_ptr<Contents> contents,
                         bool guessed) {
  auto* block = block_of(tensor);
  block->values = std::move(contents);
  block->drawn = true;
  block->guessed = guessed;
}

}  // namespace vramcast
