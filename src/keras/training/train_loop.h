#pragma once
// The loops behind fit, evaluate and predict.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "keras/training/progress_bar.h"
#include "keras/training/step_source.h"
#include "keras/training/training_position.h"
#include "keras/training/training_state.h"
#include "tutti/base/log.h"

namespace tutti::keras {

/// What predict gathers: the replicas' outputs of each step, in the order of the rows.
class JoinedOutputs {
 public:
  void add(const std::vector<Nest>& parts);
  /// InvalidArgument when there was no row.
  Nest joined(const Model& model);

 private:
  Nest structure_;
  std::vector<std::vector<Tensor>> pieces_;  ///< of each leaf
};

/// The rows of all workers in their order, one part for all, on every worker. Each brings the parts
/// of its replicas; `in_turn`: see DistributedPlan::deals_in_turn.
std::vector<Nest> joined_over(distribute::WorkerGroup& workers, const std::vector<Nest>& parts,
                              bool in_turn);

/// One call of fit: epochs of steps, hooks between them, validation after them.
class TrainLoop {
 public:
  TrainLoop(Model& model, const FitOptions& options, std::unique_ptr<StepSource> training,
            std::unique_ptr<StepSource> validation);
  ~TrainLoop();
  TrainLoop(const TrainLoop&) = delete;
  TrainLoop& operator=(const TrainLoop&) = delete;
  History run();

  /// One pass of test steps; resets the metrics first. `limit` steps at most. `bar` may be null.
  static Logs evaluate(Model& model, StepSource& source, std::optional<int64_t> limit,
                       const std::vector<callbacks::AnyCallback>& callbacks, ProgressBar* bar);
  /// One pass of predict steps; the outputs joined in row order.
  static Nest predict(Model& model, StepSource& source, std::optional<int64_t> limit,
                      const std::vector<callbacks::AnyCallback>& callbacks, ProgressBar* bar);
  /// The outputs of one step in the order of the rows, in one part or more: of all workers' rows,
  /// on every worker. `in_turn`: see DistributedPlan::deals_in_turn.
  static std::vector<Nest> predict_step(Model& model, const Step& step, bool in_turn);
  /// The parts of one step on all replicas.
  static void run_step(Model& model, const Step& step, void (Model::*part)(const Batch&));

  /// The state of a training as the tensors and the description of a file (docs/formats.md).
  static io::TensorFile backup_of(const Model& model, const TrainingPosition& position);

 private:
  History run_now();
  void run_epoch(int64_t epoch);
  void start_pass();
  /// Takes the state of position_.resume_from, and the place in the data. Gives the epoch.
  int64_t resume();
  /// Makes what the first batch makes, weights and metrics, without a training step.
  static void make_state(Model& model, const Step& step);
  /// False when the metrics are not those of the backup.
  static bool take_metrics(Model& model, const io::TensorFile& file, int64_t count);
  bool run_execution(int64_t& step, int64_t end);
  using Clock = std::chrono::steady_clock;
  std::optional<Step> next_step(int64_t step);
  std::optional<Step> wait_for_data();
  /// At the log level `info` (`debug` with verbose = 0): what an epoch is made of, before training;
  /// how fast it was, after it.
  LogLevel level() const { return verbose_ == 0 ? LogLevel::kDebug : LogLevel::kInfo; }
  void log_begin() const;
  void log_end() const;
  /// At the log level `debug`: how long the epoch took, and how much of it was waiting.
  void log_epoch(int64_t epoch) const;
  /// What has run, in numbers.
  struct Work {
    int64_t steps = 0;
    int64_t rows = 0;
    Clock::duration took{};
    std::string text() const;
  };
  void draw(int64_t seen);
  Logs batch_logs(const callbacks::AnyCallback& callback);
  Logs logs_to_draw();
  bool validates_after(int64_t epoch) const;

  Model& model_;
  const FitOptions& options_;
  std::unique_ptr<StepSource> training_;
  std::unique_ptr<StepSource> validation_;
  int verbose_;
  History history_;
  std::unique_ptr<ProgressBar> bar_;
  TrainingPosition position_;
  bool out_of_data_ = false;
  int64_t known_steps_ = -1;
  Work epoch_;                ///< since it began
  Work all_;                  ///< in all epochs that have ended
  Clock::duration waited_{};  ///< for data, in this epoch
  std::optional<Logs> logs_;  ///< of the batch just finished, read once
};

/// 0, 1 or 2: what kVerboseAuto means here. Of several workers the chief alone draws by itself.
int resolve_verbose(int verbose, const distribute::Strategy& strategy);
/// The metrics as a bar shows them in the middle of an epoch. With several workers this worker's
/// alone: it is a matter of time which of them draws, and a reading by all would need all.
Logs metrics_to_draw(Model& model);
/// Calls `body`; of several workers one that fails tells the others.
void guarded_over_workers(const Model& model, FunctionRef<void()> body);
/// The verbose of the bar that the loop draws itself: 0 where a ProgbarLogger does.
int bar_verbose(int verbose, const std::vector<callbacks::AnyCallback>& callbacks);
/// The number of steps that was asked for is more than the data had.
void warn_out_of_data(const char* operation, const Model& model);

}  // namespace tutti::keras
