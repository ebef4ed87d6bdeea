#include "rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <mutex>

#include "tutti/base/log.h"

namespace tutti::rpc {
namespace {

void to_our_log(gpr_log_func_args* line) {
  const std::string text = cat("grpc: ", line->message);
  if (line->severity == GPR_LOG_SEVERITY_ERROR) {
    // A stranger that knocks a thousand times writes one warning.
    log_once(LogLevel::kWarning, cat("grpc ", line->file, ":", line->line), text);
  }
  log_debug(text, " (", line->file, ":", line->line, ")");
}

}  // namespace

void take_over_grpc_log() {
  static std::once_flag once;
  std::call_once(once, [] { gpr_set_log_function(to_our_log); });
}

}  // namespace tutti::rpc
