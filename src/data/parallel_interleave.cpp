// interleave with several datasets read at once.

#include <algorithm>
#include <deque>

#include "data/iterator_state.h"
#include "data/nested.h"
#include "data/worker_pool.h"

namespace tutti::data {
namespace {

/// An element, the end (neither), or the exception that stood in its place.
struct Item {
  std::optional<Nest> element;
  std::exception_ptr error;
  bool closes = false;  // behind this error comes nothing
};

/// A dataset that is read ahead.
struct Lane {
  std::optional<Nest> argument;    // of the task's thread
  ElementCall call;                // of the task's thread
  std::optional<OpenInner> inner;  // of the task's thread
  std::deque<Item> ready;          // under the mutex, as all below
  bool reading = false;
  bool ended = false;
};

class ParallelInterleavePass : public Iterator {
 public:
  ParallelInterleavePass(std::unique_ptr<Iterator> input, InnerOpener opener,
                         const InterleaveShape& shape, const InterleaveOptions& options)
      : input_(std::move(input)),
        opener_(std::move(opener)),
        block_length_(shape.block_length),
        ahead_(std::max(block_length_, kLeastAhead)),
        calls_(settings_.calls(*options.num_parallel_calls)),
        in_order_(options.deterministic.value_or(settings_.deterministic)),
        lanes_(shape.cycle_length) {
    if (settings_.warm_start) begin();
  }
  ~ParallelInterleavePass() override {
    MutexLock lock(mutex_);
    stop_ = true;
  }

  std::optional<Nest> next() override {
    begin();
    for (std::size_t passed = 0; passed < lanes_.size();) {
      if (!in_order_) turn_to_a_ready_lane();
      std::shared_ptr<Lane>& lane = lanes_[turn_];
      if (!lane) {
        ++passed;
        advance();
        continue;
      }
      passed = 0;
      Item item = take(*lane);
      if (item.element || item.error) {
        read_on(lane);
        if (item.error) {
          if (item.closes) open(lane);
          std::rethrow_exception(item.error);
        }
        if (++taken_ == block_length_) advance();
        return std::move(item.element);
      }
      open(lane);
      advance();
    }
    return std::nullopt;
  }

  Nest save() const override {
    std::unique_lock<Mutex> lock(mutex_);
    wait_for_readers(lock);
    std::vector<Nest> lanes;
    for (const auto& lane : lanes_) lanes.push_back(lane ? saved(*lane) : Nest());
    return Nest::map({{"input", input_->save()},
                      {"calls", opener_.save()},
                      {"lanes", Nest::list(std::move(lanes))},
                      {"turn", state::number(static_cast<int64_t>(turn_))},
                      {"taken", state::number(taken_)},
                      {"begun", state::number(begun_)},
                      {"ended", state::number(ended_)}});
  }
  void restore(const Nest& saved) override {
    {
      std::unique_lock<Mutex> lock(mutex_);
      wait_for_readers(lock);
    }
    input_->restore(state::part(saved, "input"));
    opener_.restore(state::part(saved, "calls"));
    const std::vector<Nest>& lanes = state::list_in(saved, "lanes");
    if (lanes.size() != lanes_.size())
      throw DataLoss(cat("restore iterator: interleave of ", lanes.size(), " datasets, expected ",
                         lanes_.size()));
    const auto last = static_cast<int64_t>(lanes_.size()) - 1;
    turn_ = static_cast<std::size_t>(state::number_in(saved, "turn", 0, last));
    taken_ = state::number_in(saved, "taken", 0, block_length_ - 1);
    begun_ = state::number_in(saved, "begun") != 0;
    ended_ = state::number_in(saved, "ended") != 0;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const bool open = lanes[i].kind() != NestKind::kNone;
      lanes_[i] = open ? revived(lanes[i]) : nullptr;
    }
  }

 private:
  // Elements of a lane that one task reads: fewer tasks for small elements.
  static constexpr int64_t kLeastAhead = 8;

  /// From here to next() nothing is read: the seeds of the plans below stay as they are too.
  void wait_for_readers(std::unique_lock<Mutex>& lock) const {
    paused_ = true;
    stop_ = true;
    changed_.wait(lock, [this] {
      return std::none_of(lanes_.begin(), lanes_.end(),
                          [](const auto& lane) { return lane && lane->reading; });
    });
    stop_ = false;
  }
  static Nest saved(const Lane& lane) {
    std::vector<Nest> ready;
    for (const Item& item : lane.ready) {
      ready.push_back(Nest::map({{"item", state::item(item.element, item.error)},
                                 {"closes", state::number(item.closes)}}));
    }
    return Nest::map(
        {{"argument",
          lane.argument && !lane.inner && !lane.ended ? state::element(*lane.argument) : Nest()},
         {"call", state::numbers({static_cast<int64_t>(lane.call.seed), lane.call.index})},
         // What has ended may have no pass that can tell its place.
         {"inner", lane.inner && !lane.ended ? lane.inner->save() : Nest()},
         {"ready", Nest::list(std::move(ready))},
         {"ended", state::number(lane.ended)}});
  }
  std::shared_ptr<Lane> revived(const Nest& saved) const {
    auto lane = std::make_shared<Lane>();
    if (state::part(saved, "argument").kind() != NestKind::kNone)
      lane->argument = state::element_in(saved, "argument");
    const std::vector<int64_t> call = state::numbers_in(saved, "call");
    if (call.size() != 2) throw DataLoss("restore iterator: no call, expected a seed and a number");
    lane->call = {static_cast<uint64_t>(call[0]), call[1]};
    const Nest& inner = state::part(saved, "inner");
    if (inner.kind() != NestKind::kNone) lane->inner = opener_.reopen(inner);
    for (const Nest& one : state::list_in(saved, "ready")) {
      Item& item = lane->ready.emplace_back();
      state::item_in(state::part(one, "item"), item.element, item.error);
      item.closes = state::number_in(one, "closes") != 0;
    }
    lane->ended = state::number_in(saved, "ended") != 0;
    if (!lane->ended && !lane->inner && !lane->argument)
      throw DataLoss("restore iterator: a dataset of nothing, expected an element or a place");
    return lane;
  }

  void begin() {
    if (pool_ && !paused_) return;
    paused_ = false;
    if (!pool_) pool_.emplace(calls_, settings_.cores_per_thread);
    for (auto& lane : lanes_) {
      if (lane) read_on(lane);
      if (!begun_) open(lane);
    }
    begun_ = true;
  }
  void advance() {
    turn_ = (turn_ + 1) % lanes_.size();
    taken_ = 0;
  }
  /// The next dataset takes the place; its first elements are read at once. What the input throws
  /// stands where its first element would.
  void open(std::shared_ptr<Lane>& lane) {
    lane.reset();
    if (ended_) return;
    auto next = std::make_shared<Lane>();
    try {
      next->argument = input_->next();
      ended_ = !next->argument;
      if (ended_) return;
      next->call = opener_.next_call();
    } catch (...) {
      next->ready.push_back({std::nullopt, std::current_exception(), true});
      next->ended = true;
    }
    lane = std::move(next);
    read_on(lane);
  }

  void read_on(const std::shared_ptr<Lane>& lane) {
    if (!pool_) return;
    {
      MutexLock lock(mutex_);
      const auto have = static_cast<int64_t>(lane->ready.size());
      if (lane->reading || lane->ended || have > ahead_ / 2) return;
      lane->reading = true;
    }
    pool_->submit([this, lane] { read(*lane); });
  }
  void read(Lane& lane) {
    at::NoGradGuard no_grad;
    for (bool more = true; more;) {
      Item item;
      try {
        if (!lane.inner) {
          item.closes = true;  // unless the dataset is there
          lane.inner = opener_.open(std::move(*lane.argument), lane.call);
          item.closes = false;
        }
        item.element = lane.inner->pass->next();
      } catch (...) {
        item.error = std::current_exception();
      }
      MutexLock lock(mutex_);
      lane.ended = item.closes || (!item.element && !item.error);
      lane.ready.push_back(std::move(item));
      more = !lane.ended && !stop_ && static_cast<int64_t>(lane.ready.size()) < ahead_;
      lane.reading = more;
      changed_.notify_one();
    }
  }
  Item take(Lane& lane) {
    std::unique_lock<Mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !lane.ready.empty(); });
    Item item = std::move(lane.ready.front());
    lane.ready.pop_front();
    return item;
  }
  void turn_to_a_ready_lane() {
    std::unique_lock<Mutex> lock(mutex_);
    const auto ready = [this](std::size_t lane) {
      return lanes_[lane] && !lanes_[lane]->ready.empty();
    };
    changed_.wait(lock, [&] {
      bool any_open = false;
      for (std::size_t i = 0; i < lanes_.size(); ++i) {
        const std::size_t lane = (turn_ + i) % lanes_.size();
        any_open = any_open || lanes_[lane] != nullptr;
        if (!ready(lane)) continue;
        if (lane != turn_) taken_ = 0;
        turn_ = lane;
        return true;
      }
      return !any_open;
    });
  }

  PassSettings settings_;
  std::unique_ptr<Iterator> input_;
  InnerOpener opener_;
  int64_t block_length_;
  int64_t ahead_;  // elements of a lane that wait
  int calls_;
  bool in_order_;
  bool begun_ = false;
  bool ended_ = false;
  mutable bool paused_ = false;
  mutable bool stop_ = false;
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::size_t turn_ = 0;
  int64_t taken_ = 0;               // of the block
  std::optional<WorkerPool> pool_;  // ends before what its tasks use
};

class ParallelInterleavePlan : public NestedPlan {
 public:
  ParallelInterleavePlan(PlanPtr input, PlanFunction function, const InterleaveOptions& options,
                         std::shared_ptr<PassSeeds> seeds)
      : NestedPlan("interleave", std::move(input), std::move(function), std::move(seeds)),
        options_(options),
        shape_(options) {}
  std::string arguments() const override {
    return cat(
        shape_.text(), optional_text("num_parallel_calls", options_.num_parallel_calls),
        options_.deterministic ? cat(", deterministic=", bool_text(*options_.deterministic)) : "");
  }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<ParallelInterleavePlan>(std::move(inputs[0]), function(), options_,
                                                    seeds());
  }
  std::unique_ptr<Iterator> preview() const override {
    return interleave_one_by_one(inputs()[0], function(), options_, seeds())->preview();
  }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<ParallelInterleavePass>(input().iterator(), opener(), shape_, options_);
  }

 private:
  InterleaveOptions options_;
  InterleaveShape shape_;
};

}  // namespace

PlanPtr plans::parallel_interleave(PlanPtr input, PlanFunction function,
                                   const InterleaveOptions& options) {
  check_parallel_calls("interleave", *options.num_parallel_calls);
  return std::make_shared<ParallelInterleavePlan>(std::move(input), std::move(function), options,
                                                  PassSeeds::of_function());
}

}  // namespace tutti::data
