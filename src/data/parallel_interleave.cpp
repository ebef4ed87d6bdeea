// interleave with several datasets read at once.

#include <deque>

#include "data/nested.h"
#include "data/worker_pool.h"

namespace tutti::data {
namespace {

class ParallelInterleavePlan : public NestedPlan {
 public:
  ParallelInterleavePlan(PlanPtr input, PlanFunction function, const InterleaveOptions& options)
      : NestedPlan("interleave", std::move(input), std::move(function)),
        options_(options),
        shape_(options),
        calls_(parallel_calls("interleave", *options.num_parallel_calls)) {}
  std::string arguments() const override {
    return cat(
        shape_.text(), optional_text("num_parallel_calls", options_.num_parallel_calls),
        options_.deterministic ? cat(", deterministic=", bool_text(*options_.deterministic)) : "");
  }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<ParallelInterleavePlan>(std::move(inputs[0]), function(), options_);
  }
  std::unique_ptr<Iterator> preview() const override {
    InterleaveOptions one_by_one = options_;
    one_by_one.num_parallel_calls.reset();
    one_by_one.deterministic.reset();
    return plans::interleave(inputs()[0], function(), one_by_one)->preview();
  }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), function(), shape_, calls_,
                                  options_.deterministic.value_or(true));
  }

 private:
  class Pass : public Iterator {
   public:
    Pass(std::unique_ptr<Iterator> input, PlanFunction function, const InterleaveShape& shape,
         int calls, bool in_order)
        : input_(std::move(input)),
          function_(std::move(function)),
          block_length_(shape.block_length),
          in_order_(in_order),
          lanes_(shape.cycle_length),
          pool_(calls) {}
    ~Pass() override {
      MutexLock lock(mutex_);
      stop_ = true;
    }

    std::optional<Nest> next() override {
      if (!begun_) {
        begun_ = true;
        for (auto& lane : lanes_) open(lane);
      }
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

   private:
    /// An element, the end (neither), or the exception that stood in its place.
    struct Item {
      std::optional<Nest> element;
      std::exception_ptr error;
      bool closes = false;  // behind this error comes nothing
    };
    /// A dataset that is read ahead, by one block.
    struct Lane {
      std::optional<Nest> argument;    // of the task's thread
      std::optional<OpenInner> inner;  // of the task's thread
      std::deque<Item> ready;          // under the mutex, as all below
      bool reading = false;
      bool ended = false;
    };

    void advance() {
      turn_ = (turn_ + 1) % lanes_.size();
      taken_ = 0;
    }
    /// The next dataset takes the place; its first block is read at once. What the input throws
    /// stands where its first element would.
    void open(std::shared_ptr<Lane>& lane) {
      lane.reset();
      if (ended_) return;
      auto next = std::make_shared<Lane>();
      try {
        next->argument = input_->next();
        ended_ = !next->argument;
        if (ended_) return;
      } catch (...) {
        next->ready.push_back({std::nullopt, std::current_exception(), true});
        next->ended = true;
      }
      lane = std::move(next);
      read_on(lane);
    }

    void read_on(const std::shared_ptr<Lane>& lane) {
      {
        MutexLock lock(mutex_);
        const auto have = static_cast<int64_t>(lane->ready.size());
        if (lane->reading || lane->ended || have >= block_length_) return;
        lane->reading = true;
      }
      pool_.submit([this, lane] { read_block(*lane); });
    }
    void read_block(Lane& lane) {
      for (int64_t i = 0; i < block_length_; ++i) {
        Item item;
        try {
          if (!lane.inner) {
            item.closes = true;  // unless the dataset is there
            lane.inner.emplace(std::move(*lane.argument), function_, false);
            item.closes = false;
          }
          item.element = lane.inner->pass->next();
        } catch (...) {
          item.error = std::current_exception();
        }
        MutexLock lock(mutex_);
        const bool last = item.closes || (!item.element && !item.error);
        lane.ready.push_back(std::move(item));
        lane.ended = last;
        if (last || i + 1 == block_length_ || stop_) lane.reading = false;
        changed_.notify_all();
        if (last || stop_) return;
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

    std::unique_ptr<Iterator> input_;
    PlanFunction function_;
    int64_t block_length_;
    bool in_order_;
    bool begun_ = false;
    bool ended_ = false;
    bool stop_ = false;
    Mutex mutex_;
    ConditionVariable changed_;
    std::vector<std::shared_ptr<Lane>> lanes_;
    std::size_t turn_ = 0;
    int64_t taken_ = 0;  // of the block
    WorkerPool pool_;    // ends before what its tasks use
  };

  InterleaveOptions options_;
  InterleaveShape shape_;
  int calls_;
};

}  // namespace

PlanPtr plans::parallel_interleave(PlanPtr input, PlanFunction function,
                                   const InterleaveOptions& options) {
  return std::make_shared<ParallelInterleavePlan>(std::move(input), std::move(function), options);
}

}  // namespace tutti::data
