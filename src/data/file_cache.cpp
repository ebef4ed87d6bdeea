// cache in files, snapshot, save and load.

#include <filesystem>

#include "data/element_files.h"
#include "data/iteration.h"
#include "data/iterator_state.h"
#include "data/pass_options.h"
#include "io/byte_stream.h"
#include "tutti/base/log.h"
#include "tutti/data/plans.h"

namespace tutti::data {
namespace {

/// Reads the files when they are complete; writes them else.
class FileCachePass : public Iterator {
 public:
  /// `shares`: where another pass writes, this one writes nothing; else that is an error.
  FileCachePass(PlanPtr plan, ElementFiles files, bool shares)
      : plan_(std::move(plan)),
        files_(std::move(files)),
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
                      {"offset", state::number(reader_ ? reader_->offset() : -1)},
                      {"number", state::number(reader_ ? reader_->number() : 0)}});
  }
  void restore(const Nest& saved) override {
    done_ = state::number_in(saved, "done") != 0;
    const int64_t offset = state::number_in(saved, "offset", -1);
    const int64_t number = state::number_in(saved, "number", 0);
    reader_.reset();
    if (done_ || (offset < 0 && number == 0)) return;
    if (!files_.complete())
      throw FailedPrecondition(cat("restore iterator [", files_.prefix,
                                   "]: no complete cache, expected the one that was read before"));
    reader_.emplace(files_);
    reader_->seek(offset, number);
  }

 private:
  void begin() {
    if (files_.complete()) {
      reader_.emplace(files_);
      return;
    }
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
        writer_->add(*element);
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
  bool shares_;
  PassOptions options_;
  std::unique_ptr<Iterator> input_;
  std::optional<ElementWriter> writer_;
  std::optional<ElementReader> reader_;
  bool done_ = false;
};

class FileCachePlan : public UnaryPlan {
 public:
  FileCachePlan(PlanPtr input, const char* name, std::string argument, ElementFiles files)
      : UnaryPlan(std::move(input)),
        name_(name),
        argument_(std::move(argument)),
        files_(std::move(files)) {}
  std::string name() const override { return name_; }
  std::string arguments() const override { return argument_; }
  bool runs_functions() const override { return !files_.complete() && Plan::runs_functions(); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<FileCachePlan>(std::move(inputs[0]), name_, argument_, files_);
  }
  int64_t num_rows() const override { return input().num_rows(); }
  std::unique_ptr<Iterator> iterator() const override {
    if (input().cardinality() == kInfinite) return input().iterator();  // never completes a pass
    return std::make_unique<FileCachePass>(inputs()[0], files_, name_ == std::string("snapshot"));
  }

 private:
  const char* name_;
  std::string argument_;
  ElementFiles files_;
};

class LoadPlan : public Plan {
 public:
  LoadPlan(std::string path, ElementFiles files)
      : Plan({}),
        path_(std::move(path)),
        files_(std::move(files)),
        size_(ElementReader(files_).size()) {}
  std::string name() const override { return "load"; }
  std::string arguments() const override { return path_; }
  int64_t cardinality() const override { return size_; }
  SpecNest element_spec() const override { return spec_.of(*this); }
  std::unique_ptr<Iterator> iterator() const override { return std::make_unique<Pass>(files_); }

 private:
  struct Pass : Iterator {
    explicit Pass(const ElementFiles& files) : reader(files) {}
    std::optional<Nest> next() override { return reader.next(); }
    Nest save() const override {
      return Nest::map(
          {{"offset", state::number(reader.offset())}, {"number", state::number(reader.number())}});
    }
    void restore(const Nest& saved) override {
      const int64_t offset = state::number_in(saved, "offset");
      reader.seek(offset, state::number_in(saved, "number", 0));
    }
    ElementReader reader;
  };
  std::string path_;
  ElementFiles files_;
  int64_t size_;
  SeenSpec spec_;
};

ElementFiles files_in(const char* operation, const std::string& path,
                      const SnapshotOptions& options) {
  if (path.empty()) throw InvalidArgument(cat(operation, ": an empty path, expected a folder"));
  io::compression_from_name(operation, options.compression);
  return {path + "/elements", options.compression};
}

void make_folder(const char* operation, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw NotFound(cat(operation, " [", path, "]: ", error.message(),
                       ", expected a folder that "
                       "can be made"));
}

}  // namespace

PlanPtr plans::cache_in_files(PlanPtr input, const std::string& filename) {
  if (filename.empty()) return cache(std::move(input));
  return std::make_shared<FileCachePlan>(std::move(input), "cache", filename,
                                         ElementFiles{filename, ""});
}

PlanPtr plans::snapshot(PlanPtr input, const std::string& path, const SnapshotOptions& options) {
  ElementFiles files = files_in("snapshot", path, options);
  make_folder("snapshot", path);
  std::string argument = path;
  if (!options.compression.empty()) argument += cat(", compression=", options.compression);
  return std::make_shared<FileCachePlan>(std::move(input), "snapshot", std::move(argument),
                                         std::move(files));
}

void plans::save(const Plan& plan, const std::string& path, const SnapshotOptions& options) {
  const ElementFiles files = files_in("save", path, options);
  make_folder("save", path);
  auto lock = WriterLock::take(files);
  if (!lock)
    throw AlreadyExists(cat("save [", path,
                            "]: another pass writes these files, expected one at a "
                            "time; let it end first, or use another folder"));
  ElementWriter writer(files, std::move(lock));
  for_each(plan, [&](const Nest& element) { writer.add(element); });
  writer.finish();
}

PlanPtr plans::load(const std::string& path) {
  const ElementFiles files = files_in("load", path, {});
  if (!files.complete())
    throw NotFound(cat("load [", path, "]: no ", files.index(),
                       ", expected a folder that Dataset::save wrote"));
  return std::make_shared<LoadPlan>(path, files);
}

}  // namespace tutti::data
