// all_reduce_bench: a float32 SUM all-reduce between processes of this machine, in every way that
// Tutti has, beside the straightforward one (gather all tensors, add them) and beside Gloo as
// PyTorch calls it. Open MPI and MPICH have a program of their own, peers/mpi_all_reduce.cpp.
//
// It starts one process a rank. Every rank rewrites its whole tensor before each call, as a
// backward pass does, and all meet before the clock starts; contenders alternate. Before anything
// is timed, each contender's result is compared with local_reduce: bit for bit for Tutti's, to
// rounding for Gloo's. The figures are rank 0's, in microseconds: median and best. A row of JSON
// for each size and contender goes to standard output, a table to standard error.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "collectives/contenders.h"
#include "collectives/gloo/gloo.h"
#include "collectives/hierarchical/hierarchical.h"
#include "collectives/local_reduce.h"
#include "collectives/shm/shm.h"
#include "processes.h"

namespace tutti::bench {
namespace {

using collectives::Communicator;
using collectives::GroupOptions;
using collectives::ReduceOp;

struct Settings {
  int ranks = 2;
  int rank = -1;  // -1: the process that starts the others
  std::string folder;
  std::string address = "127.0.0.1";
  std::vector<int64_t> bytes{4,      64,      1024,    4096,     16384,   65536,
                             262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  std::vector<std::string> contenders;
  double seconds = 0.3;  // for each size and contender
};

/// The straightforward way: everybody gets everything and adds it.
class GatherAndAdd : public Contender {
 public:
  explicit GatherAndAdd(const GroupOptions& options) : group_(collectives::make_shm(options)) {}
  void all_reduce(at::Tensor& tensor) override {
    const at::Tensor all = group_->all_gather(tensor);
    tensor.copy_(all.view({group_->size(), -1}).sum(0));
  }

 private:
  std::unique_ptr<Communicator> group_;
};

class Ours : public Contender {
 public:
  Ours(std::unique_ptr<Communicator> group, bool in_arena,
       collectives::WireDtype wire = collectives::WireDtype::kSame)
      : group_(std::move(group)), in_arena_(in_arena), options_{.wire_dtype = wire} {}
  at::Tensor make(int64_t numel) override {
    if (!in_arena_) return Contender::make(numel);
    return collectives::shared_arena(*group_)->empty({numel}, at::kFloat).zero_();
  }
  void all_reduce(at::Tensor& tensor) override {
    group_->all_reduce(tensor, ReduceOp::kSum, options_);
  }

 private:
  std::unique_ptr<Communicator> group_;
  bool in_arena_;
  collectives::CommunicationOptions options_;
};

struct Entry {
  const char* name;
  double tolerance;  // 0: the bits of local_reduce
  std::function<std::unique_ptr<Contender>(const GroupOptions&)> make;
};

GroupOptions in_pairs(GroupOptions options) {
  options.host = std::to_string(options.rank / 2);
  return options;
}

const std::vector<Entry>& entries() {
  using collectives::WireDtype;
  static const std::vector<Entry> all{
      {"gather_and_add", 1e-5,
       [](const GroupOptions& o) { return std::make_unique<GatherAndAdd>(o); }},
      {"c10d_gloo", 1e-5, make_c10d_gloo},
      {"shm", 0, [](const GroupOptions& o) { return std::make_unique<Ours>(make_shm(o), false); }},
      {"shm_arena", 0,
       [](const GroupOptions& o) { return std::make_unique<Ours>(make_shm(o), true); }},
      {"gloo", 0,
       [](const GroupOptions& o) { return std::make_unique<Ours>(make_gloo(o), false); }},
      {"gloo_bfloat16", 0.02,
       [](const GroupOptions& o) {
         return std::make_unique<Ours>(make_gloo(o), false, WireDtype::kBFloat16);
       }},
      {"hierarchical", 0,
       [](const GroupOptions& o) {
         return std::make_unique<Ours>(make_hierarchical(in_pairs(o)), false);
       }},
      {"hierarchical_bfloat16", 0.02,
       [](const GroupOptions& o) {
         return std::make_unique<Ours>(make_hierarchical(in_pairs(o)), false, WireDtype::kBFloat16);
       }},
  };
  return all;
}

at::Tensor values(int rank, int64_t numel) {
  return (at::arange(numel, at::kFloat) * 0.37F + static_cast<float>(rank)).sin();
}

/// True when the first call gives what it must.
bool is_right(const Entry& entry, Contender& contender, const Settings& settings, int64_t numel) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < settings.ranks; ++rank) all.push_back(values(rank, numel));
  const at::Tensor wanted = collectives::local_reduce(ReduceOp::kSum, all);
  at::Tensor tensor = contender.make(numel);
  tensor.copy_(all[static_cast<std::size_t>(settings.rank)]);
  contender.all_reduce(tensor);
  if (entry.tolerance == 0) return tensor.equal(wanted);
  return (tensor - wanted).abs().max().item<double>() <= entry.tolerance * settings.ranks;
}

class Timing {
 public:
  void add(double microseconds) { times_.push_back(microseconds); }
  double median() {
    std::nth_element(times_.begin(), times_.begin() + static_cast<long>(times_.size() / 2),
                     times_.end());
    return times_[times_.size() / 2];
  }
  double best() const { return *std::min_element(times_.begin(), times_.end()); }
  std::size_t count() const { return times_.size(); }

 private:
  std::vector<double> times_;
};

int run_rank(const Settings& settings) {
  using Clock = std::chrono::steady_clock;
  at::set_num_threads(1);
  const auto store = std::make_shared<collectives::FileStore>(settings.folder);
  const auto options_for = [&](const std::string& name) {
    const std::string prefix = name == "c10d_gloo" ? settings.folder + "/c10d" : "bench/" + name;
    return GroupOptions{.store = store,
                        .prefix = prefix,
                        .rank = settings.rank,
                        .size = settings.ranks,
                        .address = settings.address};
  };
  const auto meeting = collectives::make_communicator(options_for("meeting"));
  std::vector<const Entry*> chosen;
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const Entry& entry : entries()) {
    if (!settings.contenders.empty() &&
        std::find(settings.contenders.begin(), settings.contenders.end(), entry.name) ==
            settings.contenders.end()) {
      continue;
    }
    chosen.push_back(&entry);
    contenders.push_back(entry.make(options_for(entry.name)));
  }
  for (const int64_t bytes : settings.bytes) {
    const int64_t numel = std::max<int64_t>(1, bytes / 4);
    const at::Tensor source = values(settings.rank, numel);
    std::vector<at::Tensor> tensors;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (!is_right(*chosen[i], *contenders[i], settings, numel)) {
        std::fprintf(stderr, "%s, %ld bytes: a wrong result on rank %d\n", chosen[i]->name, bytes,
                     settings.rank);
        return 1;
      }
      tensors.push_back(contenders[i]->make(numel));
    }
    std::vector<Timing> timings(chosen.size());
    at::Tensor go_on = at::zeros({1}, at::kLong);
    const auto end = Clock::now() + std::chrono::duration<double>(settings.seconds * chosen.size());
    for (int round = 0;; ++round) {
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        tensors[i].copy_(source);
        meeting->barrier();
        const auto start = Clock::now();
        contenders[i]->all_reduce(tensors[i]);
        const std::chrono::duration<double, std::micro> time = Clock::now() - start;
        if (round >= 3) timings[i].add(time.count());
      }
      go_on.fill_(round < 8 || Clock::now() < end ? 1 : 0);
      meeting->broadcast(go_on, 0);
      if (go_on.item<int64_t>() == 0) break;
    }
    if (settings.rank != 0) continue;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      std::cout << nlohmann::json{{"bytes", bytes},
                                  {"contender", chosen[i]->name},
                                  {"ranks", settings.ranks},
                                  {"median_us", timings[i].median()},
                                  {"best_us", timings[i].best()},
                                  {"calls", timings[i].count()}}
                << std::endl;
      std::fprintf(stderr, "| %10ld | %-21s | %12.2f | %12.2f |\n", bytes, chosen[i]->name,
                   timings[i].median(), timings[i].best());
    }
  }
  meeting->barrier();
  return 0;
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  tutti::bench::Settings settings;
  CLI::App program{"all-reduce between processes of this machine"};
  program.add_option("--ranks", settings.ranks, "processes");
  program.add_option("--bytes", settings.bytes, "sizes of the tensors")->delimiter(',');
  program.add_option("--contenders", settings.contenders, "their names; all when absent")
      ->delimiter(',');
  program.add_option("--seconds", settings.seconds, "for each size and contender");
  program.add_option("--rank", settings.rank, "this process alone; for scripts/slow_network.sh");
  program.add_option("--folder", settings.folder, "where the ranks find one another");
  program.add_option("--address", settings.address, "at which the others reach this rank");
  CLI11_PARSE(program, argc, argv);
  if (settings.rank < 0) {
    std::fprintf(stderr, "| bytes | contender | median us | best us |\n|---|---|---|---|\n");
    return tutti::bench::start_ranks(settings.ranks, argc, argv);
  }
  return tutti::bench::run_rank(settings);
}
