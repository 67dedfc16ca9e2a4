// nn.LSTM, nn.GRU and nn.RNN reach cuDNN through dispatch stubs, not operators. These functions
// stand in the stubs and call the operator _cudnn_rnn.
#pragma once
#include <ATen/native/RNN.h>
#include <ATen/ops/_cudnn_rnn.h>

namespace vramcast {

enum RnnMode : int64_t { relu = 0, tanh = 1, lstm = 2, gru = 3 };

// The buffer that all weights are views of after flatten_parameters(); undefined if they are not.
inline at::Tensor flat_weights(at::TensorList weights) {
  const auto& storage = weights[0].storage();
  int64_t num_elements = 0;
  for (const auto& weight : weights) {
    if (!weight.storage().is_alias_of(storage)) return {};
    num_elements += weight.numel();
  }
  if (num_elements * static_cast<int64_t>(weights[0].itemsize()) >
      static_cast<int64_t>(storage.nbytes()))
    return {};
  // detached: cuDNN reads the weights through the buffer, autograd does not
  return weights[0].detach().as_strided({num_elements}, {1}, 0);
}

struct RnnResult {
  at::Tensor output, hy, cy;
};

inline RnnResult run_rnn(RnnMode mode, const at::Tensor& input, const at::Tensor& hx,
                         const at::Tensor& cx, at::TensorList weights, bool has_biases,
                         int64_t layers, double dropout, bool train, bool bidirectional,
                         bool batch_first, at::IntArrayRef batch_sizes) {
  const bool projects = mode == lstm && cx.defined() && hx.size(2) != cx.size(2);
  const auto hidden = projects ? cx.size(2) : hx.size(2);
  const auto buffer = flat_weights(weights);
  auto results = at::_cudnn_rnn(input, weights, (has_biases ? 4 : 2) + (projects ? 1 : 0),
                                buffer.defined() ? std::optional<at::Tensor>(buffer) : std::nullopt,
                                hx, cx.defined() ? std::optional<at::Tensor>(cx) : std::nullopt,
                                mode, hidden, projects ? hx.size(2) : 0, layers, batch_first,
                                dropout, train, bidirectional, batch_sizes, std::nullopt);
  return {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
}

inline void run_lstm(at::Tensor& output, at::Tensor& hy, at::Tensor& cy, const at::Tensor& input,
                     at::TensorList hx, at::TensorList weights, bool has_biases, int64_t layers,
                     double dropout, bool train, bool bidirectional, bool batch_first) {
  const auto result = run_rnn(lstm, input, hx[0], hx[1], weights, has_biases, layers, dropout,
                              train, bidirectional, batch_first, {});
  output = result.output, hy = result.hy, cy = result.cy;
}

template <RnnMode mode>
void run_simple(at::Tensor& output, at::Tensor& hy, const at::Tensor& input, const at::Tensor& hx,
                at::TensorList weights, bool has_biases, int64_t layers, double dropout, bool train,
                bool bidirectional, bool batch_first) {
  const auto result = run_rnn(mode, input, hx, {}, weights, has_biases, layers, dropout, train,
                              bidirectional, batch_first, {});
  output = result.output, hy = result.hy;
}

inline std::vector<int64_t> to_vector(const at::Tensor& batch_sizes) {
  const auto* data = batch_sizes.const_data_ptr<int64_t>();  // lives on the host
  return {data, data + batch_sizes.numel()};
}

inline void run_packed_lstm(at::Tensor& output, at::Tensor& hy, at::Tensor& cy,
                            const at::Tensor& input, const at::Tensor& batch_sizes,
                            at::TensorList hx, at::TensorList weights, bool has_biases,
                            int64_t layers, double dropout, bool train, bool bidirectional) {
  const auto result = run_rnn(lstm, input, hx[0], hx[1], weights, has_biases, layers, dropout,
                              train, bidirectional, false, to_vector(batch_sizes));
  output = result.output, hy = result.hy, cy = result.cy;
}

template <RnnMode mode>
void run_packed(at::Tensor& output, at::Tensor& hy, const at::Tensor& input,
                const at::Tensor& batch_sizes, const at::Tensor& hx, at::TensorList weights,
                bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  const auto result = run_rnn(mode, input, hx, {}, weights, has_biases, layers, dropout, train,
                              bidirectional, false, to_vector(batch_sizes));
  output = result.output, hy = result.hy;
}

inline void install_rnn_stubs() {
  at::native::lstm_cudnn_stub.set_cuda_dispatch_ptr(&run_lstm);
  at::native::gru_cudnn_stub.set_cuda_dispatch_ptr(&run_simple<gru>);
  at::native::rnn_tanh_cudnn_stub.set_cuda_dispatch_ptr(&run_simple<tanh>);
  at::native::rnn_relu_cudnn_stub.set_cuda_dispatch_ptr(&run_simple<relu>);
  at::native::lstm_packed_cudnn_stub.set_cuda_dispatch_ptr(&run_packed_lstm);
  at::native::gru_packed_cudnn_stub.set_cuda_dispatch_ptr(&run_packed<gru>);
  at::native::rnn_tanh_packed_cudnn_stub.set_cuda_dispatch_ptr(&run_packed<tanh>);
  at::native::rnn_relu_packed_cudnn_stub.set_cuda_dispatch_ptr(&run_packed<relu>);
}

}  // namespace vramcast
