// What simulate() needs to know about an operator: read once from its schema and torch's dispatch
// tables.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "arguments_key.h"
#include "one_device.h"
#include "reductions.h"
#include "result_shapes.h"
#include "storages.h"

namespace vramcast {

// run_on_host: its CUDA kernel is ordinary code that calls other operators
enum class Kind : uint8_t { simulate, redispatch, run_on_host };

// What an operator draws from the GPU's generator (drawing.h). A kernel takes numbers for every
// element (of the first argument) but where it is said otherwise.
enum class Draws : uint8_t {
  nothing,
  whole,  // whole numbers
  whole_from,
  whole_to,
  shares,  // of a range
  normal,
  coins,
  coins_each,  // with a chance of its own each
  dropout,
  choices,  // multinomial
  exponential,
  others,
  ten,     // numbers, however many elements there are
  unknown  // how many is not known
};

struct OnHost;  // on_host.h

struct Operator {
  int32_t name = 0;
  const OnHost* on_host = nullptr;  // how the host computes what it does
  Kind kind = Kind::simulate;
  bool is_of_torch = false, is_copy = false;
  bool transposes = false;  // t and transpose
  bool makes_alike = false;  // empty_like and zeros_like
  bool sends = false;        // _to_copy, which .cuda() is
  bool makes_zero_tensor = false;  // zeros that take no memory: a gradient of nothing
  bool is_host_code = false;
  bool is_of_extension = false;
  bool wants_one_device = false;
  bool is_collective = false, waits_for_collective = false;
  const Reduction* reduction = nullptr;
  // gives the result's shape where there is no Meta kernel in C++
  const ShapeRule* shape_rule = nullptr;
  bool adds_bias = false, scales = false;  // addmm and _scaled_mm
  bool leaves_complex = false;  // abs: the result of a complex tensor is real
  bool copies_first = false;    // angle as complex numbers, clamp in the type of its result
  bool fills = false;           // with one number
  int filled_with = -1;         // which argument is that number, or the one for a mask's places
  bool overwrites = false;      // writes every element of the tensor it writes to
  bool scatters = false;       // writes to places that another tensor names
  bool sorts_places = false;   // likewise, and sorts them where results must not vary:
  bool names_rows = false, adds_up = false;  // index_add and index_copy; index_add and scatter_add
  int passes_by_name = 0;       // over elements of its first argument that another tensor names
  bool by_pixel = false;        // pictures are resized; most have a thread for each pixel
  bool by_element = false;      // but where channels are neighbours in memory
  bool solves = false;          // a triangular system
  bool joins = false;           // cat
  bool norms_weights = false;   // weight norm
  bool pools = false, looks_up_points = false;  // windows; grid_sampler
  bool is_backward = false;
  int goes_along = -1;          // which argument says along which dimensions: reductions and topk
  int units_dimension = -1;     // whose indices are gone through side by side: samples, channels
  bool uninitialised = false;   // its result has no contents yet
  bool is_gemm = false;         // a matrix product: cuBLAS takes a workspace
  bool is_laborious = false;    // more than a few operations for each element
  size_t first_matrix = 0;      // of a product: addmm and its like begin with what is added
  bool samples = false;         // draws random numbers; integers are really drawn
  Draws draws = Draws::nothing;
  bool gives_shares = false;    // numbers between 0 and 1
  bool clamps = false, subtracts = false;
  bool keeps_zeros = false;  // of its first argument: mul, div, and the largest of a row
  // picks by value (topk, argmax): where the values are unknown, the pick is random
  bool ranks = false;
  size_t picked_result = 1;  // which result says what was picked
  bool keeps_order = false;  // what was the largest of a row still is
  bool wants_mask = false;   // of booleans, as its second argument
  bool masks = false;        // where a tensor of booleans says
  bool leaves_out = false;   // writes a number where a mask is true, so nothing is picked there
  bool pointwise = false;
  bool moves = false;  // its result has only elements of its arguments
  bool is_deferred = false;  // what it makes of random numbers is worked out when it is asked for
  bool compares_equal = false, compares_unequal = false;  // eq, ne
  bool asks = false;    // a comparison, or whether all or any are true
  bool counts = false, folds = false;  // a sum; a reduction or a scalar product
  bool updates_list = false;  // writes to a list of tensors, as optimizers do, and returns nothing
  bool is_whole_update = false;  // and is all that an optimizer does: _fused_adamw_
  bool maps_list = false;     // returns a list of tensors that are like those of its first
  // factories: which argument is the device, and which the layout
  int device_argument = -1, layout_argument = -1;
  std::vector<int> result_aliases;  // per result: the argument it aliases, or -1
  std::vector<bool> result_writes;  // per result: whether that alias is written to (in place, out=)
  std::vector<int> written_arguments;  // arguments written to
  bool writes_to(size_t argument) const {
    return std::count(written_arguments.begin(), written_arguments.end(),
                      static_cast<int>(argument));
  }
  bool writes_unsaid(size_t argument) const;
  int info_result = -1;                // linalg: which result tells of errors
};

static bool only_views(const Operator& info) {
  for (size_t i = 0; i < info.result_aliases.size(); ++i)
    if (info.result_aliases[i] < 0 || info.result_writes[i]) return false;
  return !info.result_aliases.empty();
}

static ShortMutex operators_mutex;
static std::unordered_map<const c10::FunctionSchema*, Operator> operators;

// Operators with a kernel of their own on CUDA but not on the CPU, and the other way round, as in
// the dispatch tables of a CUDA build of torch.
static bool has_cuda_kernel(const std::string& name, bool otherwise) {
  static const std::unordered_set<std::string> with = {"aten::_fused_rms_norm", "aten::_grouped_mm",
                                                       "aten::_chunk_cat",
                                                       "aten::convolution_backward"};
  static const std::unordered_set<std::string> without = {
      "aten::_stack", "aten::native_channel_shuffle", "aten::narrow_copy", "aten::pixel_unshuffle",
      "aten::pixel_shuffle"};
  if (with.count(name) || name.rfind("aten::_foreach_", 0) == 0) return true;
  return without.count(name) ? false : otherwise;
}

// mv calls addmv_. addr is not here: its kernel is torch's own, not cuBLAS's.
static const std::unordered_set<std::string> gemm_names = {"aten::mm",
                                                           "aten::addmm",
                                                           "aten::addmm_",
                                                           "aten::bmm",
                                                           "aten::baddbmm",
                                                           "aten::baddbmm_",
                                                           "aten::addbmm",
                                                           "aten::addbmm_",
                                                           "aten::addmv",
                                                           "aten::addmv_",
                                                           "aten::dot",
                                                           "aten::vdot",
                                                           "aten::_addmm_activation",
                                                           "aten::_scaled_mm",
                                                           "aten::_int_mm"};

static const std::unordered_set<std::string> ranking_names = {
    "aten::topk", "aten::sort",        "aten::argmax",   "aten::argmin", "aten::max",
    "aten::min",  "aten::multinomial", "aten::kthvalue", "aten::median", "aten::mode"};

static const std::unordered_set<std::string> order_keeping_names = {
    "aten::exp", "aten::clone", "aten::_to_copy", "aten::div"};

static const std::unordered_map<std::string, Draws> draws_by_name = {
    {"aten::random_", Draws::whole},          {"aten::random_.from", Draws::whole_from},
    {"aten::random_.to", Draws::whole_to},    {"aten::uniform_", Draws::shares},
    {"aten::normal_", Draws::normal},         {"aten::bernoulli_.float", Draws::coins},
    {"aten::_fused_dropout", Draws::dropout}, {"aten::exponential_", Draws::exponential},
    {"aten::geometric_", Draws::others},      {"aten::log_normal_", Draws::others},
    {"aten::cauchy_", Draws::others},         {"aten::rrelu_with_noise", Draws::others},
    {"aten::_standard_gamma", Draws::ten},    {"aten::bernoulli_.Tensor", Draws::coins_each},
    {"aten::multinomial", Draws::choices}};

static const std::unordered_set<std::string> share_names = {
    "aten::uniform_", "aten::sigmoid", "aten::sigmoid_", "aten::_softmax", "aten::softmax"};

// Their kernel for CPU and CUDA is the same host code, which calls other operators.
static const std::unordered_set<std::string> host_code_names = {
    "aten::_to_sparse",
    "aten::_to_sparse_csr",
    "aten::_to_sparse_csc",
    "aten::_to_sparse_bsr",
    "aten::_to_sparse_bsc",
    "aten::sparse_mask",
    "aten::_embedding_bag_backward",
    "aten::linalg_matrix_exp",
    "aten::_nested_from_padded",
    "aten::_nested_tensor_from_mask",
    "aten::_nested_tensor_from_mask_left_aligned",
    "aten::_nested_view_from_buffer",
    "aten::_nested_compute_contiguous_strides_offsets",
    "aten::_transformer_encoder_layer_fwd"};

static const std::unordered_set<std::string> picking_names = {"aten::argmax", "aten::argmin",
                                                              "aten::multinomial"};

static const std::unordered_set<std::string> moving_names = {
    "aten::cat", "aten::gather", "aten::index_select", "aten::flip", "aten::roll", "aten::repeat"};

// How often they go through the elements of their first argument that another tensor names: they
// read them, or read and write them. kernels/work.py has those that are written in Python.
static const std::unordered_map<std::string, int> passes_by_name = {
    {"aten::index_select", 1}, {"aten::gather", 1},      {"aten::index_add", 2},
    {"aten::index_add_", 2},   {"aten::index_copy", 2},  {"aten::index_copy_", 2},
    {"aten::index_reduce", 2}, {"aten::scatter", 2},     {"aten::scatter_", 2},
    {"aten::scatter_add", 2},  {"aten::scatter_add_", 2}, {"aten::scatter_reduce", 2},
    {"aten::scatter_reduce_", 2}};

static const std::unordered_set<std::string> place_sorting_names = {
    "aten::index_add",    "aten::index_add_",  "aten::index_copy",  "aten::index_copy_",
    "aten::scatter.src",  "aten::scatter_.src", "aten::scatter_add", "aten::scatter_add_"};

static const std::unordered_set<std::string> asking_names = {
    "aten::eq", "aten::ne",    "aten::lt",  "aten::le", "aten::gt",
    "aten::ge", "aten::isnan", "aten::any", "aten::all"};

// Operators of CUDA extensions that were compiled for the host, without their kernels.
static std::unordered_set<std::string> extension_names;

// Whether the operator's CUDA kernel runs on the host: it is written in Python, it is host code of
// an extension, or it is torch's own for collectives. What it allocates is then seen by running
// it. Compiled kernels can also be called unboxed, those in Python cannot.
static bool has_host_kernel(const c10::OperatorHandle& op, bool is_of_extension) {
  if (!op.hasKernelForDispatchKey(DispatchKey::CUDA)) return false;
  if (is_of_extension || op.schema().operator_name().name.rfind("c10d::", 0) == 0) return true;
  const auto state = op.dumpState();
  const auto begin = state.find("\nCUDA: ");
  if (begin == std::string::npos) return false;
  const auto kernel = state.substr(begin, state.find('\n', begin + 1) - begin);
  return kernel.find("unboxed") == std::string::npos &&
         kernel.find("vramcast") == std::string::npos;
}

// Of some that write in place only the other form has the tag.
static bool is_pointwise(const c10::OperatorHandle& op) {
  auto name = op.schema().operator_name();
  if (op.hasTag(at::Tag::pointwise) || name.name.back() != '_')
    return op.hasTag(at::Tag::pointwise);
  name.name.pop_back();
  const auto other = c10::Dispatcher::singleton().findOp(name);
  return other && other->hasTag(at::Tag::pointwise);
}

static const OnHost& find_on_host(const std::string& name);

static Operator describe(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  Operator result;
  const auto full_name = schema.operator_name().name;
  const auto overload = schema.overload_name();
  const auto name = overload.empty() ? full_name : full_name + "." + overload;
  result.name = recorder.intern(name);
  result.on_host = &find_on_host(name);
  if (!op.hasKernelForDispatchKey(DispatchKey::Meta)) result.shape_rule = find_shape_rule(name);
  result.reduction = find_reduction(full_name, overload);
  result.is_host_code = host_code_names.count(full_name) > 0;
  result.is_of_extension = extension_names.count(name) > 0;
  result.is_collective = full_name.rfind("c10d::", 0) == 0;
  result.waits_for_collective = full_name == "_c10d_functional::wait_tensor";
  result.is_copy = full_name == "aten::copy_";
  result.wants_one_device = wants_one_device(full_name + "." + overload);
  result.ranks = ranking_names.count(full_name) > 0;
  result.keeps_order = order_keeping_names.count(full_name) > 0;
  result.wants_mask = full_name.rfind("aten::masked_fill", 0) == 0;
  result.masks = full_name == "aten::where" || full_name.rfind("aten::masked_fill", 0) == 0;
  result.leaves_out = name == "aten::masked_fill.Scalar" || name == "aten::masked_fill_.Scalar";
  result.gives_shares = share_names.count(full_name) > 0;
  result.clamps = full_name == "aten::clamp" && overload.empty();
  result.subtracts = full_name == "aten::sub" && overload == "Tensor";
  result.keeps_zeros = ((full_name == "aten::mul" || full_name == "aten::div") &&
                        overload == "Tensor") ||
                       (full_name == "aten::max" && overload == "dim");
  if (picking_names.count(full_name)) result.picked_result = 0;
  result.moves = moving_names.count(full_name) > 0;
  result.pointwise = is_pointwise(op);
  result.compares_equal = full_name == "aten::eq" || full_name == "aten::eq_";
  result.compares_unequal = full_name == "aten::ne" || full_name == "aten::ne_";
  result.asks = asking_names.count(full_name) > 0;
  result.counts = full_name == "aten::sum";
  result.folds = result.reduction || full_name == "aten::dot" || full_name == "aten::vdot";
  result.fills = result.overwrites = full_name == "aten::fill_" || full_name == "aten::zero_";
  if (full_name == "aten::fill_" && overload == "Scalar") result.filled_with = 1;
  if (full_name == "aten::masked_fill_" && overload == "Scalar") result.filled_with = 2;
  result.is_of_torch = full_name.rfind("aten::", 0) == 0;
  result.transposes =
      full_name == "aten::t" || (full_name == "aten::transpose" && overload == "int");
  const bool is_like = full_name == "aten::empty_like" || full_name == "aten::zeros_like";
  result.makes_alike = is_like && overload.empty();
  result.sends = full_name == "aten::_to_copy" && overload.empty();
  result.makes_zero_tensor = full_name == "aten::_efficientzerotensor";
  result.uninitialised = full_name.rfind("aten::empty", 0) == 0;
  result.scatters = full_name == "aten::scatter_" || full_name == "aten::index_fill_" ||
                    full_name == "aten::index_copy_";
  result.sorts_places = place_sorting_names.count(name) > 0;
  result.names_rows = full_name.rfind("aten::index_", 0) == 0;
  result.adds_up = full_name.find("_add") != std::string::npos;
  if (passes_by_name.count(full_name)) result.passes_by_name = passes_by_name.at(full_name);
  if (full_name.rfind("aten::nll_loss", 0) == 0) result.units_dimension = 0;
  if (full_name.rfind("aten::cudnn_batch_norm", 0) == 0) result.units_dimension = 1;
  result.by_element = full_name == "aten::upsample_bilinear2d";
  result.joins = full_name == "aten::cat" && overload.empty();
  result.norms_weights = full_name.rfind("aten::_weight_norm_interface", 0) == 0;
  result.is_backward = full_name.ends_with("_backward");
  result.pools =
      full_name.rfind("aten::max_pool", 0) == 0 || full_name.rfind("aten::avg_pool", 0) == 0;
  result.looks_up_points = full_name.rfind("aten::grid_sampler_", 0) == 0;
  result.solves = full_name == "aten::linalg_solve_triangular";
  result.by_pixel = full_name.find("upsample_") != std::string::npos ||
                    full_name.find("adaptive_avg_pool") != std::string::npos;
  result.leaves_complex = full_name == "aten::abs";
  result.copies_first = name == "aten::angle" || name == "aten::clamp" ||
                        name == "aten::clamp_min" || name == "aten::clamp_max";
  result.adds_bias = full_name == "aten::addmm" && (overload.empty() || overload == "out");
  result.scales = full_name == "aten::_scaled_mm";
  result.is_gemm = gemm_names.count(full_name) > 0;
  result.is_laborious = result.is_gemm || full_name.find("conv") != std::string::npos ||
                        (full_name.find("linalg") != std::string::npos && !result.folds) ||
                        full_name.find("cdist") != std::string::npos ||
                        full_name.find("attention") != std::string::npos;
  result.first_matrix = full_name.find("add") != std::string::npos ? 1 : 0;
  const bool has_kernel =
      has_cuda_kernel(full_name, op.hasKernelForDispatchKey(DispatchKey::CPU) ||
                                     op.hasKernelForDispatchKey(DispatchKey::CUDA));
  const bool has_composite =
      op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
  if (has_composite && (!has_kernel || result.waits_for_collective))
    result.kind = Kind::redispatch;
  if (has_host_kernel(op, result.is_of_extension)) result.kind = Kind::run_on_host;
  const auto& arguments = schema.arguments();
  const bool is_of_lists = full_name.rfind("aten::_foreach_", 0) == 0;
  result.updates_list = is_of_lists && schema.returns().empty();
  result.is_whole_update = full_name.rfind("aten::_fused_", 0) == 0 && schema.returns().empty();
  static const std::unordered_set<std::string> by_element = {
      "add",  "sub", "mul", "div",     "addcmul", "addcdiv",    "lerp", "maximum",
      "sqrt", "neg", "abs", "minimum", "sign",    "reciprocal", "exp"};
  result.maps_list = is_of_lists && !schema.returns().empty() &&
                     by_element.count(schema.name().substr(strlen("aten::_foreach_")));
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias && alias->isWrite()) {
      result.written_arguments.push_back(i);
      if (arguments[i].name() == "out") result.overwrites = true;
    }
    if (arguments[i].name() == "device") result.device_argument = i;
    if (arguments[i].name() == "layout") result.layout_argument = i;
    if (arguments[i].name() == "generator") {
      result.samples = true;
      result.draws = Draws::unknown;
    }
    const bool is_along = result.reduction || full_name == "aten::topk";
    if (is_along && arguments[i].name() == "dim") result.goes_along = i;
  }
  const auto draws = draws_by_name.find(name);
  if (draws != draws_by_name.end()) result.draws = draws->second;
  const bool makes_one = schema.returns().size() == 1 &&
                         schema.returns()[0].type()->kind() == c10::TypeKind::TensorType;
  result.is_deferred = makes_one && !result.samples && !result.uninitialised && !result.ranks &&
                       (result.pointwise || result.folds || result.moves || result.is_gemm ||
                        result.is_copy || result.fills || full_name == "aten::_cdist_forward");
  for (const auto& ret : schema.returns()) {
    int aliased = -1;
    bool writes = false;
    if (const auto* alias = ret.alias_info()) {
      for (size_t i = 0; i < arguments.size(); ++i) {
        const auto* other = arguments[i].alias_info();
        if (other && other->beforeSets() == alias->beforeSets()) {
          aliased = i;
          break;
        }
      }
      writes = alias->isWrite();
    }
    if (ret.name() == "info") result.info_result = result.result_aliases.size();
    result.result_aliases.push_back(aliased);
    result.result_writes.push_back(writes);
  }
  return result;
}

static const Operator& operator_info(const c10::OperatorHandle& op) {
  const std::lock_guard lock(operators_mutex);
  const auto* key = &op.schema();
  auto found = operators.find(key);
  if (found == operators.end()) found = operators.emplace(key, describe(op)).first;
  return found->second;
}

static void simulate_from_now_on(const c10::OperatorHandle& op) {
  const std::lock_guard lock(operators_mutex);
  operators[&op.schema()].kind = Kind::simulate;
}

}  // namespace vramcast
