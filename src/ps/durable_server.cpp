#include "ps/durable_server.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "remote/nest_message.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/train/checkpoint.h"

namespace tutti::ps {
namespace {

namespace fs = std::filesystem;

/// A server's state as a part of a checkpoint.
class ServerState final : public Trackable {
 public:
  explicit ServerState(ParameterServer& server) : server_(server) {}
  Nest state() const override { return server_.state(); }
  void check_state(const Nest&) const override {}  // set_state checks before it changes
  void set_state(const Nest& state) override { server_.set_state(state); }

 private:
  ParameterServer& server_;
};

train::Checkpoint checkpoint_of(ParameterServer& server) {
  return train::Checkpoint({{"server", std::make_shared<ServerState>(server)}});
}

/// N of "state-N.tutti"; nothing for other names, which a death while a commit is written leaves.
std::optional<int64_t> number_of_commit(const std::string& name) {
  constexpr std::string_view kHead = "state-";
  if (name.rfind(kHead, 0) != 0) return std::nullopt;
  int64_t number = 0;
  std::from_chars(name.data() + kHead.size(), name.data() + name.size(), number);
  if (number <= 0 || name != cat(kHead, number, ".tutti")) return std::nullopt;
  return number;
}

/// Whether a method changes nothing.
bool is_reading(const std::string& method) {
  return method == "ps.read" || method == "ps.gather" || method == "ps.variables" ||
         method == "ps.iterations" || method == "ps.state";
}

/// Whether the record that begins there is one whose writer died: right as far as it goes, and no
/// more behind it. `begin` is in the file.
bool is_cut_short(const std::string& path, int64_t begin) {
  constexpr std::size_t kHead = 12, kTail = 4;  // a length with its checksum, the data's
  std::ifstream file(path, std::ios::binary);
  file.seekg(begin);
  const std::string rest{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (rest.size() < kHead) return true;
  uint64_t length = 0;
  uint32_t checksum = 0;
  std::memcpy(&length, rest.data(), sizeof length);
  std::memcpy(&checksum, rest.data() + sizeof length, sizeof checksum);
  return io::masked_crc32c({rest.data(), sizeof length}) == checksum &&
         (length > rest.size() || rest.size() < kHead + length + kTail);
}

/// The change as its log has it. Throws where a call could not hold it either.
std::string record_of(const std::string& method, const Nest& request) {
  tutti::rpc::Message message;
  message.method = method;
  remote::append_nest(request, method, remote::Sharing::kKeep, message);
  const tutti::rpc::Pieces pieces = tutti::rpc::encode_message(message, method);
  std::string text;
  text.reserve(tutti::rpc::size_of(pieces));
  for (const tutti::rpc::Piece& piece : pieces) text.append(piece.data, piece.size);
  return text;
}

}  // namespace

DurableServer::DurableServer(const std::string& folder)
    : folder_(folder), methods_(methods_of(local_)) {
  std::error_code error;
  fs::create_directories(folder, error);
  const std::string lock_path = folder + "/lock";
  lock_file_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_file_ < 0) {
    throw NotFound(cat("ps server [", folder, "]: ", std::strerror(errno),
                       ", expected a folder that this user may write"));
  }
  if (::flock(lock_file_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_file_);
    throw FailedPrecondition(
        cat("ps server [", folder, "]: another process has it, expected a folder for each server"));
  }
  try {
    MutexLock lock(mutex_);
    take_up();
    commit_locked();
  } catch (...) {
    ::close(lock_file_);
    throw;
  }
}

DurableServer::~DurableServer() { ::close(lock_file_); }

std::string DurableServer::path(const char* kind, int64_t number) const {
  return cat(folder_, "/", kind, "-", number);
}

void DurableServer::take_up() {
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const auto found = number_of_commit(entry.path().filename().string());
    if (found) number_ = std::max(number_, *found);
  }
  if (number_ == 0) return;
  // ServerState's set_state says InvalidArgument of a file that is whole and holds something else.
  checkpoint_of(local_).read(path("state", number_)).assert_consumed();
  const std::string log = path("log", number_);
  if (fs::exists(log)) replay(log);
}

void DurableServer::replay(const std::string& log) {
  io::TFRecordReader reader(log);
  int64_t replayed = 0;
  for (;;) {
    const int64_t begin = reader.offset();
    std::optional<std::string_view> record;
    try {
      record = reader.next();
    } catch (const DataLoss&) {
      if (!is_cut_short(log, begin)) throw;
      // Nobody was answered for it.
      log_info("ps server [", folder_, "]: the log ends in the middle of a record, left out");
      break;
    }
    if (!record) break;
    const auto message = tutti::rpc::decode_message({tutti::rpc::piece_of(std::string(*record))});
    const auto method = methods_.find(message.method);
    if (method == methods_.end())
      throw DataLoss(cat("ps server [", folder_, "]: a record of no method, expected a change's"));
    method->second(remote::CallContext(nullptr), remote::nest_of(message));
    ++replayed;
  }
  if (replayed > 0)
    log_info("ps server [", folder_, "]: took up ", replayed, " changes of the log");
}

void DurableServer::check_whole() const {
  if (broken_) {
    throw DataLoss(cat("ps server [", folder_,
                       "]: its folder could not be written before, expected one that is whole; "
                       "restart the server"));
  }
}

void DurableServer::commit_locked() {
  try {
    write_commit();
  } catch (...) {
    broken_ = true;  // nobody knows which commit the next start finds, so there is no log to go on
    throw;
  }
}

void DurableServer::write_commit() {
  const int64_t next = number_ + 1;
  // The log first: a commit without one would be one with no changes, which is what it is.
  std::optional<io::TFRecordWriter> log(path("log", next));
  log->flush();
  checkpoint_of(local_).write(path("state", next));
  log_ = std::move(log);
  const int64_t before = number_;
  number_ = next;
  logged_ = 0;
  std::error_code ignored;
  if (before > 0) {
    fs::remove(path("state", before) + ".tutti", ignored);
    fs::remove(path("log", before), ignored);
  }
}

void DurableServer::commit() {
  MutexLock lock(mutex_);
  check_whole();
  commit_locked();
}

int64_t DurableServer::logged() {
  MutexLock lock(mutex_);
  return logged_;
}

Nest DurableServer::ask(const std::string& method, const Nest& request) {
  const remote::CallContext nobody(nullptr);
  MutexLock lock(mutex_);
  check_whole();
  if (is_reading(method)) return methods_.at(method)(nobody, request);
  if (method == "ps.set_state") {
    Nest reply = methods_.at(method)(nobody, request);
    commit_locked();
    return reply;
  }
  // First of all, so that a change which no record holds is not made.
  const std::string record = record_of(method, request);
  Nest reply = methods_.at(method)(nobody, request);
  if (!has_changed(method, reply)) return reply;
  try {
    log_->write(record);
    log_->flush();
  } catch (...) {
    broken_ = true;  // the change is made and nowhere written: what is in memory must not be served
    throw;
  }
  ++logged_;
  return reply;
}

}  // namespace tutti::ps
