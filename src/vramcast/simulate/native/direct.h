// The most frequent operators, called without the dispatcher's stack: device.cpp includes this
// where it has simulate(). What is on a stack is counted once more, and where Python has the tensor
// too, its global lock is taken for that: a fifth of the time of a small operator.
#pragma once

// The arguments as a stack would have them, but not counted.
template <size_t count>
class Borrowed {
 public:
  template <typename... Arguments>
  explicit Borrowed(const Arguments&... arguments) : values_{value_of(arguments)...} {}
  Borrowed(const Borrowed&) = delete;
  ~Borrowed() {
    for (auto& value : values_)
      if (value.isTensor()) std::move(value).toTensor().unsafeReleaseTensorImpl();
  }
  c10::ArrayRef<IValue> values() const { return values_; }

 private:
  static IValue value_of(const at::Tensor& tensor) {
    return c10::MaybeOwnedTraits<at::Tensor>::createBorrow(tensor);
  }
  template <typename Value>
  static IValue value_of(const Value& value) {
    return value;
  }
  std::array<IValue, count> values_;
};

// Nothing where the operator has no kernel of its own, or not all are ordinary tensors of the GPU.
static at::Tensor simulate_directly(const c10::OperatorHandle& op, const Operator& info,
                                    DispatchKeySet below, c10::ArrayRef<IValue> arguments) {
  if (below.has(DispatchKey::Python) || is_made_of_dense(info, below, arguments)) return {};
  if (auto made = made_by_hand(info, arguments); made.defined()) return made;
  const auto placement = placement_of(info, arguments);
  if (info.kind != Kind::simulate || info.is_host_code || !placement.on_gpu ||
      placement.left_on_host)
    return {};
  return std::move(simulate_on_gpu(op, info, arguments)[0]).toTensor();
}

template <typename Op, typename Schema = typename Op::schema>
struct Direct;
template <typename Op, typename... Arguments>
struct Direct<Op, at::Tensor(Arguments...)> {
  static at::Tensor run(DispatchKeySet keys, Arguments... given) {
    static const auto& info = operator_info(op());
    recorder.locate_new_node();
    {
      const Borrowed<sizeof...(Arguments)> arguments(given...);
      auto made = simulate_directly(op(), info, below_simulation(keys), arguments.values());
      if (made.defined()) return made;
    }
    return simulated(keys, given...);
  }
  static at::Tensor simulated(DispatchKeySet keys, Arguments... given) {
    Stack stack{IValue(given)...};
    simulate(op(), keys, &stack);
    return std::move(stack[0]).toTensor();
  }
  static const c10::OperatorHandle& op() {
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
    return op;
  }
  static void add(torch::Library& library) {
    const std::string name = Op::name, overload = Op::overload_name;
    library.impl((overload.empty() ? name : name + "." + overload).c_str(), &run);
  }
};

template <typename... Ops>
static void add_direct_kernels(torch::Library& library) {
  (Direct<Ops>::add(library), ...);
}

// Modules make their parameters on the host: small ones as torch does, at once.
static at::Tensor empty(DispatchKeySet keys, c10::SymIntArrayRef sizes,
                        std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                        std::optional<at::Device> device, std::optional<bool> pinned,
                        std::optional<at::MemoryFormat> format) {
  using Op = at::_ops::empty_memory_format;
  const auto below = below_simulation(keys);
  const auto known_sizes = c10::asIntArrayRefSlowOpt(sizes);
  const auto count = known_sizes ? c10::multiply_integers(*known_sizes) : -1;
  const auto size = c10::elementSize(type.value_or(c10::get_default_dtype_as_scalartype()));
  if (device.value_or(at::kCPU) != at::kCPU || below.has(DispatchKey::Python) || count < 0 ||
      count > max_host_float_bytes / static_cast<int64_t>(size))
    return Direct<Op>::simulated(keys, sizes, type, layout, device, pinned, format);
  recorder.locate_new_node();
  return Op::redispatch(below, sizes, type, layout, device, pinned, format);
}

static void register_direct_kernels(torch::Library& library) {
  namespace ops = at::_ops;
  library.impl("empty.memory_format", &empty);
  add_direct_kernels<ops::add_Tensor, ops::sub_Tensor, ops::mul_Tensor, ops::div_Tensor, ops::mm,
                     ops::bmm, ops::addmm, ops::baddbmm, ops::t, ops::transpose_int, ops::view,
                     ops::sum_dim_IntList, ops::neg, ops::exp, ops::sqrt, ops::rsqrt, ops::relu,
                     ops::sigmoid, ops::tanh, ops::silu, ops::pow_Tensor_Scalar>(library);
}
