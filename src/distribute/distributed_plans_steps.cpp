// At the log level `debug` each piece that is dealt is described by a line: which rows of its
// stream it is, for which replica, and how its values begin.

#include "distribute/distributed_plans_steps.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "data/iteration.h"
#include "data/iterator_state.h"
#include "data/produced_ahead.h"
#include "distribute/thread_team.h"
#include "tensor/worker_peers.h"
#include "tutti/base/log.h"

namespace tutti::distribute {
namespace {

bool is_accelerator(const DeviceName& device) { return device.kind != DeviceName::Kind::kCpu; }

Nest on_device(Nest piece, const DeviceName& device) {
  if (!is_accelerator(device)) return piece;
  return piece.map_leaves([&](const Tensor& leaf) { return leaf.to(device.torch_device()); });
}

constexpr int64_t kShown = 8;

/// `int64 (2, 3) = 0 1 2 3 …`.
std::string leaf_text(const Tensor& leaf) {
  std::string text = cat(dtype_name(leaf.scalar_type()), " ", shape_text(leaf.sizes()));
  if (leaf.layout() != at::kStrided || leaf.is_complex()) return text;
  const Tensor values = leaf.flatten();
  const bool integral = at::isIntegralType(leaf.scalar_type(), /*includeBool=*/true);
  text += " =";
  for (int64_t i = 0; i < std::min(kShown, values.numel()); ++i) {
    text += integral ? cat(" ", values[i].item().toLong()) : cat(" ", values[i].item().toDouble());
  }
  return values.numel() > kShown ? text + " …" : text;
}

std::string leaf_text(const StringTensor& strings) {
  const bool whole = strings.numel() <= kShown;
  const StringTensor flat = strings.reshape({-1});
  return cat("string ", shape_text(strings.sizes()), " = ", whole ? flat : flat.narrow(0, kShown),
             whole ? "" : " …");
}

/// Says what each replica reads.
class Dump {
 public:
  explicit Dump(std::size_t streams) : rows_(streams, 0) {}
  void piece(int64_t step, std::size_t replica, const DeviceName& device, std::size_t stream,
             const Nest& piece) {
    int64_t rows = 1;  // an element without a batch axis is a row
    std::string text;
    const auto add = [&](const auto& component) {
      if (component.dim() > 0) rows = component.size(0);
      text += cat(text.empty() ? "" : "; ", leaf_text(component));
    };
    piece.for_each(add, add);
    log_line(LogLevel::kDebug, cat("distribute [step ", step, ", replica ", replica, " on ", device,
                                   "]: rows ", rows_[stream], " to below ", rows_[stream] + rows,
                                   " of input stream ", stream, ": ", text));
    rows_[stream] += rows;
  }

 private:
  std::vector<int64_t> rows_;  // dealt from each stream so far
};

class DealingIterator : public DistributedIterator {
 public:
  /// `threads`: of the operators that make a step.
  DealingIterator(std::vector<std::unique_ptr<data::Iterator>> streams,
                  std::shared_ptr<const Dealing> dealing, int threads, bool fetch)
      : streams_(std::move(streams)),
        dealing_(std::move(dealing)),
        threads_(threads),
        fetch_(fetch) {
    if (log_level() <= LogLevel::kDebug) dump_.emplace(streams_.size());
  }

  std::optional<std::vector<Nest>> next() override {
    if (done_) return std::nullopt;
    ThreadTeam team(threads_);
    const std::size_t replicas = dealing_->devices.size();
    step_.reserve(replicas);
    // After an exception the step goes on behind the piece that is missing.
    while (step_.size() < replicas) step_.push_back(draw(step_.size()));
    std::vector<Nest> step = std::move(step_);
    step_.clear();
    if (num_missing_ > 0) {
      done_ = num_missing_ == replicas || streams_.size() == 1;
      if (num_missing_ == replicas || !fill_with_empty(step)) return std::nullopt;
      num_missing_ = 0;
    }
    ++num_steps_;
    return step;
  }

  Nest save() const override {
    if (!step_.empty())
      throw FailedPrecondition(
          "save iterator: in the middle of a step, behind an error, expected a whole step; call "
          "next once more");
    std::vector<Nest> streams;
    for (const auto& stream : streams_) streams.push_back(stream->save());
    return Nest::map({{"streams", Nest::list(std::move(streams))},
                      {"replicas", data::state::number(num_replicas())},
                      {"steps", data::state::number(num_steps_)},
                      {"done", data::state::number(done_)}});
  }
  void restore(const Nest& saved) override {
    if (const auto steps = steps_of_others(saved, /*alone=*/true, num_replicas()))
      return skip_steps(*this, *steps);
    const std::vector<Nest>& streams = data::state::list_in(saved, "streams");
    if (streams.size() != streams_.size())
      throw DataLoss(cat("restore iterator: ", streams.size(), " streams, expected ",
                         streams_.size(), " as the replication mode and the replicas make"));
    for (std::size_t i = 0; i < streams.size(); ++i) streams_[i]->restore(streams[i]);
    num_steps_ = data::state::number_in(saved, "steps", 0);
    done_ = data::state::number_in(saved, "done") != 0;
    num_missing_ = 0;
    step_.clear();
  }

 private:
  int64_t num_replicas() const { return static_cast<int64_t>(dealing_->devices.size()); }
  /// The replica's piece; without one, the empty nest.
  Nest draw(std::size_t replica) {
    const std::size_t stream = streams_.size() == 1 ? 0 : replica;
    if (streams_.size() == 1 && num_missing_ > 0) {
      ++num_missing_;
      return {};
    }
    auto piece = streams_[stream]->next();
    if (!piece) {
      ++num_missing_;
      return {};
    }
    const DeviceName& device = dealing_->devices[replica];
    if (dump_) dump_->piece(num_steps_, replica, device, stream, *piece);
    return fetch_ ? on_device(std::move(*piece), device) : std::move(*piece);
  }

  bool fill_with_empty(std::vector<Nest>& step) {
    const auto there = [](const Nest& piece) { return piece.kind() != NestKind::kNone; };
    const Nest like = *std::find_if(step.begin(), step.end(), there);
    bool batched = true;
    const auto look = [&](const auto& component) { batched = batched && component.dim() > 0; };
    like.for_each(look, look);
    if (!batched) {
      done_ = true;
      if (!dealing_->warned_of_drop.exchange(true)) {
        log_warning("distribute [", step.size(),
                    " replicas]: the data ended inside a step and elements have no batch axis; the "
                    "last ",
                    step.size() - num_missing_,
                    " are dropped. Batch the dataset, or make its length a multiple of the "
                    "replicas");
      }
      return false;
    }
    for (std::size_t replica = 0; replica < step.size(); ++replica) {
      if (there(step[replica])) continue;
      Nest empty = data::slice_rows(like, 0, 0);
      step[replica] = fetch_ ? on_device(std::move(empty), dealing_->devices[replica]) : empty;
    }
    return true;
  }

  std::vector<std::unique_ptr<data::Iterator>> streams_;
  std::shared_ptr<const Dealing> dealing_;
  int threads_;
  bool fetch_;
  std::vector<Nest> step_;  // the pieces drawn so far
  std::size_t num_missing_ = 0;
  int64_t num_steps_ = 0;
  bool done_ = false;
  std::optional<Dump> dump_;
};

/// Copies for one replica on an accelerator, on a stream beside the one that computes.
class CopyLane {
 public:
  explicit CopyLane(const DeviceName& device)
      : device_(device.torch_device()),
        guard_(device_.type()),
        stream_(guard_.getStreamFromGlobalPool(device_)) {}
  /// Starts the copy; `copied` tells when it is there. From pinned memory, else the caller waits.
  Nest start(const Nest& piece, c10::Event& copied) const {
    c10::StreamGuard on_lane(stream_);
    Nest copy = piece.map_leaves([&](const Tensor& leaf) {
      const bool pinnable = leaf.is_cpu() && leaf.layout() == at::kStrided && leaf.numel() > 0;
      return (pinnable ? leaf.pin_memory() : leaf).to(device_, /*non_blocking=*/true);
    });
    copied.record(stream_);
    return copy;
  }
  /// The work of this thread on the device comes after the copy, and the memory is not reused
  /// before that work is done.
  void take_over(const Nest& copy, const c10::Event& copied) const {
    const c10::Stream current = guard_.getStream(device_);
    copied.block(current);
    copy.for_each([&](const Tensor& leaf) {
      if (leaf.layout() == at::kStrided && leaf.numel() > 0) leaf.record_stream(current);
    });
  }
  c10::DeviceType type() const { return device_.type(); }

 private:
  c10::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream stream_;
};

/// A thread makes the steps ahead, on one core: a team of its own would spin on the cores that the
/// replicas compute on.
class StepsAhead : public DistributedIterator {
 public:
  StepsAhead(std::unique_ptr<DistributedIterator> steps, const Dealing& dealing,
             int64_t steps_ahead)
      : steps_(std::move(steps)),
        lanes_(lanes_of(dealing)),
        ahead_(
            static_cast<std::size_t>(steps_ahead),
            [](const std::function<void()>& work) {
              ThreadTeam team(1);
              work();
            },
            [this] { return make(); }) {
    ahead_.start();
  }

  std::optional<std::vector<Nest>> next() override {
    auto item = ahead_.next();
    if (!item) return std::nullopt;
    for (std::size_t replica = 0; replica < item->copied.size(); ++replica) {
      if (lanes_[replica]) lanes_[replica]->take_over(item->step[replica], *item->copied[replica]);
    }
    return std::move(item->step);
  }

  Nest save() const override {
    Nest state;
    ahead_.look([&](const auto& slots) {
      std::vector<Nest> steps;
      for (const auto& slot : slots) {
        std::optional<Nest> step;
        if (slot.item) step = Nest::list(slot.item->step);
        steps.push_back(data::state::item(step, slot.error));
      }
      state = Nest::map({{"ahead", Nest::list(std::move(steps))}, {"steps", steps_->save()}});
    });
    return state;
  }
  void restore(const Nest& saved) override {
    if (const auto steps = steps_of_others(saved, true, static_cast<int64_t>(lanes_.size())))
      return skip_steps(*this, *steps);
    ahead_.replace([&] {
      // Those that are not dealt ahead have no steps of their own.
      steps_->restore(data::state::part(saved, "steps"));
      typename data::ProducedAhead<Item>::Slots slots;
      for (const Nest& one : data::state::list_in(saved, "ahead")) {
        auto& slot = slots.emplace_back();
        std::optional<Nest> step;
        data::state::item_in(one, step, slot.error);
        if (!step) continue;
        if (step->size() != lanes_.size())
          throw DataLoss(cat("restore iterator: a step of ", step->size(), " replicas, expected ",
                             lanes_.size()));
        slot.item = copied(step->items());
      }
      return slots;
    });
  }

 private:
  struct Item {
    std::vector<Nest> step;
    std::vector<std::optional<c10::Event>> copied;
  };
  using Lanes = std::vector<std::optional<CopyLane>>;  // none where the piece stays on the host

  static Lanes lanes_of(const Dealing& dealing) {
    Lanes lanes;
    for (const DeviceName& device : dealing.devices) {
      lanes.emplace_back();
      if (dealing.fetch_to_device && is_accelerator(device)) lanes.back().emplace(device);
    }
    return lanes;
  }
  std::optional<Item> make() {
    auto step = steps_->next();
    if (!step) return std::nullopt;
    return copied(std::move(*step));
  }
  Item copied(std::vector<Nest> step) const {
    Item item{std::move(step), {}};
    for (std::size_t replica = 0; replica < lanes_.size(); ++replica) {
      item.copied.emplace_back();
      if (!lanes_[replica]) continue;
      Nest& piece = item.step[replica];
      piece = lanes_[replica]->start(piece, item.copied.back().emplace(lanes_[replica]->type()));
    }
    return item;
  }

  std::unique_ptr<DistributedIterator> steps_;
  Lanes lanes_;
  mutable data::ProducedAhead<Item> ahead_;
};

const Nest* entry(const Nest& state, const char* key) {
  if (state.kind() != NestKind::kMap) return nullptr;
  const auto at = std::find(state.keys().begin(), state.keys().end(), key);
  return at == state.keys().end() ? nullptr : &state.items()[at - state.keys().begin()];
}

}  // namespace

// A state is one of these maps: {of_workers: states of several workers}, {taken, steps: state} of
// one of them, {ahead: steps, steps: state} where steps are made ahead, or {streams, steps: a
// number} innermost.
std::optional<int64_t> steps_of_others(const Nest& saved, bool alone, int64_t replicas) {
  const Nest* state = &saved;
  bool others = false;
  if (const Nest* list = entry(*state, kOfWorkers)) {
    if (list->kind() != NestKind::kList || list->size() == 0)
      throw DataLoss("restore iterator: workers without states, expected those of a checkpoint");
    others = true;
    state = &list->items()[0];
  }
  const Nest* taken = entry(*state, "taken");
  others = others || (taken == nullptr) != alone;
  int64_t steps = taken != nullptr ? data::state::number_in(*state, "taken", 0) : 0;
  if (taken != nullptr) state = &data::state::part(*state, "steps");
  int64_t ahead = 0;
  if (const Nest* made = entry(*state, "ahead")) {
    ahead = static_cast<int64_t>(made->size());
    state = &data::state::part(*state, "steps");
  }
  if (entry(*state, "replicas") != nullptr)
    others = others || data::state::number_in(*state, "replicas", 1) != replicas;
  if (!others) return std::nullopt;
  if (taken == nullptr) steps = data::state::number_in(*state, "steps", 0) - ahead;
  return std::max<int64_t>(steps, 0);
}

void skip_steps(DistributedIterator& pass, int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    if (!pass.next()) return;
  }
}

std::unique_ptr<DistributedIterator> deal(std::vector<std::unique_ptr<data::Iterator>> streams,
                                          std::shared_ptr<const Dealing> dealing,
                                          int64_t steps_ahead) {
  const bool ahead = steps_ahead > 0;
  // On a replica's team: a larger one would leave OpenMP threads spinning on the cores that the
  // other replicas are about to use.
  const int threads = ahead ? 1 : dealing->threads;
  auto steps = std::make_unique<DealingIterator>(std::move(streams), dealing, threads,
                                                 dealing->fetch_to_device && !ahead);
  if (!ahead) return steps;
  return std::make_unique<StepsAhead>(std::move(steps), *dealing, steps_ahead);
}

}  // namespace tutti::distribute
