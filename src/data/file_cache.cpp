// cache in files, and snapshot.

#include "data/iterator_state.h"
#include "data/pass_options.h"
#include "data/saved_elements.h"
#include "tutti/base/log.h"

namespace tutti::data {
namespace {

/// Reads the files when they are complete; writes them else.
class FileCachePass : public Iterator {
 public:
  /// `shares`: where another pass writes, this one writes nothing; else that is an error.
  FileCachePass(PlanPtr plan, ElementFiles files, Saving saving, bool shares)
      : plan_(std::move(plan)),
        files_(std::move(files)),
        saving_(std::move(saving)),
        shares_(shares),
        options_(current_pass_options()) {}
  ~FileCachePass() override {
    if (writer_)
      log_once(LogLevel::kWarning, cat("data/cache/partial/", files_.prefix),
               cat("cache [", files_.prefix,
                   "]: a pass ended early and its elements are dropped; the next complete pass "
                   "fills the cache"));
  }

  std::optional<Nest> next() override {
    if (done_) return std::nullopt;
    if (!reader_ && !input_) begin();
    if (reader_) return reader_->next();
    auto element = input_->next();
    done_ = !element;
    if (writer_) write(element);
    return element;
  }

  Nest save() const override {
    if (input_ && !done_)
      throw FailedPrecondition(cat("save iterator: a pass that writes the cache ", files_.prefix,
                                   ", expected one that reads it; save it when the cache is "
                                   "complete"));
    return Nest::map({{"done", state::number(done_)},
                      {"generation", state::number(generation_)},
                      {"reader", reader_ ? reader_->save() : Nest()}});
  }
  void restore(const Nest& saved) override {
    done_ = state::number_in(saved, "done") != 0;
    const int64_t generation = state::number_in(saved, "generation", 0);
    const Nest& place = state::part(saved, "reader");
    reader_.reset();
    if (done_ || place.kind() == NestKind::kNone) return;
    if (!files_.complete())
      throw FailedPrecondition(cat("restore iterator [", files_.prefix,
                                   "]: no complete cache, expected the one that was read before"));
    read();
    if (generation != generation_)
      throw FailedPrecondition(cat("restore iterator [", files_.prefix,
                                   "]: a newer cache, expected the one that was read before"));
    reader_->restore(place);
  }

 private:
  void read() {
    const ElementIndex index = ElementIndex::read(files_);
    generation_ = index.generation;
    const PassOptionsScope scope(options_);
    reader_ = read_elements(files_, index, saving_.reader);
  }
  void begin() {
    if (files_.complete()) return read();
    auto lock = WriterLock::take(files_);
    if (!lock && !shares_) {
      throw AlreadyExists(cat("cache [", files_.lock(),
                              "]: another pass writes these files, expected one at a time; let it "
                              "end first, or use another name"));
    }
    // It may have been completed just before.
    if (lock && files_.complete()) return begin();
    const PassOptionsScope scope(options_);
    if (lock) writer_.emplace(files_, std::move(lock));
    input_ = plan_->iterator();
  }
  void write(const std::optional<Nest>& element) {
    try {
      if (element) {
        at::NoGradGuard no_grad;
        writer_->add(*element, saving_.shard ? saving_.shard(*element) : 0);
      } else {
        writer_->finish();
        writer_.reset();
      }
    } catch (...) {
      writer_.reset();  // the pass goes on without
      throw;
    }
  }

  PlanPtr plan_;
  ElementFiles files_;
  Saving saving_;
  bool shares_;
  PassOptions options_;
  std::unique_ptr<Iterator> input_;
  std::optional<ElementWriter> writer_;
  std::unique_ptr<Iterator> reader_;
  int64_t generation_ = 0;  // that is read
  bool done_ = false;
};

class FileCachePlan : public UnaryPlan {
 public:
  FileCachePlan(PlanPtr input, const char* name, std::string argument, ElementFiles files,
                Saving saving)
      : UnaryPlan(std::move(input)),
        name_(name),
        argument_(std::move(argument)),
        files_(std::move(files)),
        saving_(std::move(saving)) {}
  std::string name() const override { return name_; }
  std::string arguments() const override { return argument_; }
  bool runs_functions() const override { return !files_.complete() && Plan::runs_functions(); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<FileCachePlan>(std::move(inputs[0]), name_, argument_, files_, saving_);
  }
  int64_t num_rows() const override { return input().num_rows(); }
  std::unique_ptr<Iterator> iterator() const override {
    if (input().cardinality() == kInfinite) return input().iterator();  // never completes a pass
    return std::make_unique<FileCachePass>(inputs()[0], files_, saving_,
                                           name_ == std::string("snapshot"));
  }

 private:
  const char* name_;
  std::string argument_;
  ElementFiles files_;
  Saving saving_;
};

}  // namespace

PlanPtr plans::cache_in_files(PlanPtr input, const std::string& filename) {
  if (filename.empty()) return cache(std::move(input));
  return std::make_shared<FileCachePlan>(std::move(input), "cache", filename,
                                         ElementFiles{filename, ""}, Saving{});
}

PlanPtr plans::snapshot(PlanPtr input, const std::string& path, const Saving& saving) {
  ElementFiles files = files_in_folder("snapshot", path, saving.compression);
  make_folder("snapshot", path);
  return std::make_shared<FileCachePlan>(std::move(input), "snapshot",
                                         cat(path, saving_text(saving)), std::move(files), saving);
}

}  // namespace tutti::data
