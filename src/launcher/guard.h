#pragma once
// Two processes for a launcher: one takes the signals, the other runs the job. Whichever is killed,
// the other ends all that the job started.

#include <functional>

namespace tutti::launcher {

/// Runs `job` in a child process and returns its exit code. The job reads the signals that this
/// process gets (SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, those aside that were ignored
/// from the start), a byte each, from the descriptor it is given; the descriptor's end says that
/// this process was killed. Signals to the job's process itself do nothing, as they come to both
/// when a whole group gets them. Throws ResourceExhausted when fork fails.
int run_guarded(const std::function<int(int control)>& job);

}  // namespace tutti::launcher
