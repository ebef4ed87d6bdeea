#include "base/error_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace tutti {

void record_error(std::string_view message) noexcept {
  const char* path = std::getenv("TUTTI_ERROR_FILE");
  if (!path || !*path) return;
  // O_EXCL: of several errors and threads the first one stays.
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  dprintf(fd, "%.6f %.*s\n", now, static_cast<int>(std::min<std::size_t>(message.size(), 60000)),
          message.data());
  close(fd);
}

}  // namespace tutti
