#include "collectives/shm/segment.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::collectives {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kSecretBytes = 32;
constexpr std::chrono::seconds kHelloTime{1};  // for whoever has connected

class File {
 public:
  explicit File(int number = -1) : number_(number) {}
  File(File&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~File() {
    if (number_ >= 0) close(number_);
  }
  int get() const { return number_; }

 private:
  int number_;
};

/// What a rank says first. Plain bytes.
struct Hello {
  unsigned char secret[kSecretBytes] = {};
  int32_t rank = 0;
  uint64_t total = 0;
};

std::string where(const GroupOptions& options) {
  return cat("building a group [", options.key("shm"), " rank ", options.rank, "/", options.size,
             "]: ");
}

[[noreturn]] void throw_system(const GroupOptions& options, const char* call) {
  const int error = errno;
  const std::string text = cat(where(options), call, ": ", std::strerror(error));
  if (error == ENOMEM || error == ENOSPC || error == EMFILE || error == ENFILE) {
    throw ResourceExhausted(text);
  }
  throw Unavailable(text);
}

std::string hex(const unsigned char* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

/// Both come from the store: the socket's name and the secret that a rank must show.
struct Meeting {
  std::string name;
  std::string secret;
};

Meeting new_meeting(const GroupOptions& options) {
  unsigned char random[kSecretBytes + 16];
  if (getrandom(random, sizeof(random), 0) != static_cast<ssize_t>(sizeof(random))) {
    throw_system(options, "getrandom");
  }
  return {"tutti-" + hex(random, 16),
          std::string(reinterpret_cast<char*>(random) + 16, kSecretBytes)};
}

/// The abstract namespace: a leading zero byte, no file.
socklen_t address_of(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

void limit_time(int socket, std::chrono::milliseconds time) {
  timeval limit{};
  limit.tv_sec = time.count() / 1000;
  limit.tv_usec = static_cast<suseconds_t>(time.count() % 1000 * 1000 + 1);
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

bool same_bytes(const unsigned char* a, const char* b, std::size_t count) {
  unsigned different = 0;  // takes as long for any bytes
  for (std::size_t i = 0; i < count; ++i) {
    different |= static_cast<unsigned>(a[i] ^ static_cast<unsigned char>(b[i]));
  }
  return different == 0;
}

bool send_file(int socket, int file) {
  char byte = 1;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &file, sizeof(file));
  return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

File receive_file(int socket) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return File();
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return File();
  int file = -1;
  std::memcpy(&file, CMSG_DATA(header), sizeof(file));
  return File(file);
}

std::chrono::milliseconds left_until(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

struct flock byte_lock(int rank) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Segment::Segment(const GroupOptions& options, const Sizes& sizes) {
  try {
    if (options.rank == 0) {
      make_and_hand_out(options, sizes);
    } else {
      receive(options, sizes);
    }
  } catch (...) {
    if (data_ != nullptr) munmap(data_, size_);
    if (lock_ >= 0) close(lock_);
    throw;
  }
}

Segment::~Segment() {
  munmap(data_, size_);
  close(lock_);
}

void Segment::make_and_hand_out(const GroupOptions& options, const Sizes& sizes) {
  const File file(memfd_create("tutti-collectives", MFD_CLOEXEC));
  if (file.get() < 0) throw_system(options, "memfd_create");
  if (ftruncate(file.get(), static_cast<off_t>(sizes.total)) != 0) {
    throw_system(options, "ftruncate");
  }
  if (fallocate(file.get(), 0, 0, static_cast<off_t>(sizes.committed)) != 0) {
    throw_system(options, "fallocate");
  }
  open_and_map(file.get(), 0, sizes);

  const Meeting meeting = new_meeting(options);
  const File listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t length = address_of(meeting.name, &address);
  if (listener.get() < 0 ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener.get(), std::min(options.size + 8, 4096)) != 0) {
    throw_system(options, "a listening socket");
  }
  options.store->set(options.key("shm"), meeting.name + meeting.secret);

  const auto end = Clock::now() + options.timeout;
  std::vector<bool> served(static_cast<std::size_t>(options.size), false);
  served[0] = true;
  while (std::count(served.begin(), served.end(), false) > 0) {
    pollfd ready{listener.get(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(left_until(end).count())) == 0) {
      std::vector<int> missing;
      for (int rank = 0; rank < options.size; ++rank) {
        if (!served[static_cast<std::size_t>(rank)]) missing.push_back(rank);
      }
      throw DeadlineExceeded(cat(where(options), "nothing from rank ", join(missing, ", rank "),
                                 " in ", options.timeout.count(), " ms, expected all ",
                                 options.size,
                                 " ranks; see whether it runs, or raise the timeout"));
    }
    const File peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.get() < 0 || !same_user(peer.get())) continue;
    limit_time(peer.get(), kHelloTime);
    Hello hello;
    if (recv(peer.get(), &hello, sizeof(hello), MSG_WAITALL) != sizeof(hello)) continue;
    if (!same_bytes(hello.secret, meeting.secret.data(), kSecretBytes)) continue;
    if (hello.rank < 1 || hello.rank >= options.size) continue;
    if (hello.total != sizes.total) {
      throw InvalidArgument(cat(where(options), "rank ", hello.rank, " wants ", hello.total,
                                " bytes in all, expected ", sizes.total,
                                "; give every rank the same size and arena_bytes"));
    }
    if (send_file(peer.get(), file.get())) served[static_cast<std::size_t>(hello.rank)] = true;
  }
}

void Segment::receive(const GroupOptions& options, const Sizes& sizes) {
  const auto end = Clock::now() + options.timeout;
  std::string value;
  try {
    value = options.store->get(options.key("shm"), options.timeout);
  } catch (const DeadlineExceeded&) {
    throw DeadlineExceeded(cat(where(options), "nothing from rank 0 in ", options.timeout.count(),
                               " ms, expected all ", options.size,
                               " ranks; see whether it runs, or raise the timeout"));
  }
  if (value.size() <= kSecretBytes || value.size() > kSecretBytes + 64) {
    throw InvalidArgument(cat(where(options), value.size(),
                              " bytes from rank 0, expected a socket's name; give every group its "
                              "own prefix"));
  }
  const File peer(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (peer.get() < 0) throw_system(options, "socket");
  sockaddr_un address;
  const socklen_t length = address_of(value.substr(0, value.size() - kSecretBytes), &address);
  if (connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    throw Unavailable(cat(where(options), "rank 0 cannot be reached (", std::strerror(errno),
                          "), expected it to wait for this rank on the same machine and in the "
                          "same network namespace; see whether it has ended"));
  }
  if (!same_user(peer.get())) {
    throw PermissionDenied(cat(where(options), "rank 0 runs as another user, expected the same"));
  }
  limit_time(peer.get(), left_until(end));
  Hello hello;
  std::memcpy(hello.secret, value.data() + value.size() - kSecretBytes, kSecretBytes);
  hello.rank = options.rank;
  hello.total = sizes.total;
  const bool sent =
      send(peer.get(), &hello, sizeof(hello), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(hello));
  const File file = sent ? receive_file(peer.get()) : File();
  if (file.get() < 0) {
    throw Unavailable(cat(where(options),
                          "rank 0 closed the connection, expected the shared memory; its output "
                          "says why, or this rank was given other sizes"));
  }
  open_and_map(file.get(), options.rank, sizes);
}

void Segment::open_and_map(int file, int rank, const Sizes& sizes) {
  lock_ = open(cat("/proc/self/fd/", file).c_str(), O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (lock_ < 0 || fstat(lock_, &status) != 0) {
    throw Unavailable(cat("shm: /proc/self/fd/", file, ": ", std::strerror(errno),
                          ", expected /proc to be mounted"));
  }
  if (status.st_size != static_cast<off_t>(sizes.total)) {
    throw InvalidArgument(cat("shm: a segment of ", status.st_size, " bytes, expected ",
                              sizes.total, "; give every rank the same size and arena_bytes"));
  }
  struct flock lock = byte_lock(rank);
  if (fcntl(lock_, F_OFD_SETLK, &lock) != 0) {
    throw AlreadyExists(cat("shm: rank ", rank, " is there already (", std::strerror(errno),
                            "), expected one process for each rank; see the ranks you gave"));
  }
  void* memory =
      mmap(nullptr, sizes.total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, lock_, 0);
  if (memory == MAP_FAILED) {
    throw ResourceExhausted(
        cat("shm: mapping ", sizes.total, " bytes: ", std::strerror(errno), "; lower arena_bytes"));
  }
  data_ = static_cast<std::byte*>(memory);
  size_ = sizes.total;
#if defined(MADV_POPULATE_WRITE)
  madvise(data_, sizes.committed, MADV_POPULATE_WRITE);  // no page faults in the first calls
#endif
}

bool Segment::is_held(int rank) const {
  struct flock lock = byte_lock(rank);
  return fcntl(lock_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace tutti::collectives
