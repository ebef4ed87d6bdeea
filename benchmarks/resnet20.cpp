// ResNet-20 for 32 x 32 images as a torch::nn::Module, trained through tutti::nn::Module.

#include <torch/torch.h>

#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/nn.h"
#include "tutti/keras/optimizers.h"
#include "workload.h"

namespace tutti::bench {
namespace {

struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t in, int64_t out, int64_t stride) {
    auto conv = [&](const char* name, int64_t from, int64_t to, int64_t kernel, int64_t step) {
      return register_module(name, torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, kernel)
                                                         .stride(step)
                                                         .padding(kernel / 2)
                                                         .bias(false)));
    };
    a = conv("a", in, out, 3, stride);
    b = conv("b", out, out, 3, 1);
    norm_a = register_module("norm_a", torch::nn::BatchNorm2d(out));
    norm_b = register_module("norm_b", torch::nn::BatchNorm2d(out));
    if (in != out) projection = conv("projection", in, out, 1, stride);
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = norm_b(b(norm_a(a(x)).relu_()));
    return torch::relu(y + (projection.is_empty() ? x : projection(x)));
  }
  torch::nn::Conv2d a{nullptr}, b{nullptr}, projection{nullptr};
  torch::nn::BatchNorm2d norm_a{nullptr}, norm_b{nullptr};
};
TORCH_MODULE(Block);

struct ResNet20 : torch::nn::Module {
  ResNet20() {
    stem = register_module(
        "stem", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).padding(1).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm2d(16));
    int64_t channels = 16;
    for (int stage = 0; stage < 3; ++stage) {
      for (int i = 0; i < 3; ++i) {
        const int64_t out = 16 << stage;
        blocks.push_back(register_module("block" + std::to_string(blocks.size()),
                                         Block(channels, out, stage > 0 && i == 0 ? 2 : 1)));
        channels = out;
      }
    }
    head = register_module("head", torch::nn::Linear(64, 10));
  }
  Tensor forward(Tensor images) {
    Tensor x = norm(stem(images)).relu_();
    for (Block& block : blocks) x = block->forward(x);
    return head(x.mean({2, 3}));
  }
  torch::nn::Conv2d stem{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  std::vector<Block> blocks;
  torch::nn::Linear head{nullptr};
};

/// The manifest's weights: every convolution (HWIO) in order, then the head's kernel [in, out] and
/// bias.
void load(ResNet20& net, const std::vector<Tensor>& weights) {
  torch::NoGradGuard no_grad;
  std::size_t next = 0;
  auto set_conv = [&](torch::nn::Conv2d& conv) {
    conv->weight.copy_(weights.at(next++).permute({3, 2, 0, 1}));
  };
  set_conv(net.stem);
  for (Block& block : net.blocks) {
    set_conv(block->a);
    set_conv(block->b);
    if (!block->projection.is_empty()) set_conv(block->projection);
  }
  net.head->weight.copy_(weights.at(next++).t());
  net.head->bias.copy_(weights.at(next++));
}

}  // namespace

Measurement run_module(distribute::Strategy& strategy, const Workload& work) {
  auto scope = strategy.scope();
  nn::Module<ResNet20> net;
  load(*net, work.weights);
  keras::optimizers::SGD optimizer(
      {.learning_rate = work.learning_rate, .momentum = work.momentum});
  const auto variables = net.trainable_variables();
  std::vector<Tensor> images, labels;
  const Tensor channels_first = work.x.permute({0, 3, 1, 2}).contiguous();
  for (int r = 0; r < work.replicas; ++r) {
    images.push_back(channels_first.narrow(0, r * work.batch, work.batch));
    labels.push_back(work.y.narrow(0, r * work.batch, work.batch));
  }
  const PerReplica<Tensor> x(std::move(images)), y(std::move(labels));
  const int64_t global_batch = work.batch * work.replicas * work.workers;
  auto train_step = [&](Tensor input, Tensor target) {
    GradientTape tape;
    const Tensor losses =
        at::cross_entropy_loss(net->forward(input), target, {}, at::Reduction::None);
    const Tensor loss = nn::compute_average_loss(losses, global_batch);
    optimizer.apply_gradients(tape.gradient(loss, variables), variables);
    return loss.detach();
  };
  return measure(work, [&](bool want_loss) {
    const auto losses = strategy.run(train_step, x, y);
    return want_loss ? strategy.reduce(distribute::ReduceOp::kSum, losses).item<double>() : 0;
  });
}

}  // namespace tutti::bench
