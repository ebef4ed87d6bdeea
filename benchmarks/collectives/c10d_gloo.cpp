#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "collectives/contenders.h"

namespace tutti::bench {
namespace {

class C10dGloo : public Contender {
 public:
  explicit C10dGloo(const collectives::GroupOptions& options) {
    const auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
    const auto store = c10::make_intrusive<c10d::FileStore>(options.prefix, options.size);
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, options.rank, options.size, gloo);
  }
  void all_reduce(at::Tensor& tensor) override {
    std::vector<at::Tensor> tensors{tensor};
    group_->allreduce(tensors)->wait();
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::unique_ptr<Contender> make_c10d_gloo(const collectives::GroupOptions& options) {
  return std::make_unique<C10dGloo>(options);
}

}  // namespace tutti::bench
