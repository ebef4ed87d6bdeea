// schedules.json: the learning rate at each of some steps.

#include "golden/golden_file.h"
#include "tutti/tutti.h"

namespace tutti::golden {

void run_schedule_case(const GoldenFile& /*file*/, const Json& entry, Verdict& verdict) {
  namespace schedules = keras::optimizers::schedules;
  const Json& inputs = entry.at("inputs");
  const Json& expected = entry.at("expected");
  const std::string name = inputs.at("class");
  if (expected.contains("error")) {
    // The key word of both messages is the argument that is wrong.
    const char* word =
        expected.at("message").get<std::string>().find("boundaries") != std::string::npos
            ? "boundaries"
            : "decay_steps";
    try {
      schedules::from_config(name, inputs.at("args").dump());
      verdict.fail("no error");
    } catch (const InvalidArgument& error) {
      if (std::string(error.what()).find(word) == std::string::npos)
        verdict.fail(cat("the message is ", error.what()));
    }
    return;
  }
  const auto schedule = schedules::from_config(name, inputs.at("args").dump());
  const Json& steps = inputs.at("steps");
  const auto again = schedules::from_config(schedule->class_name(), schedule->config());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto step = steps[i].get<int64_t>();
    verdict.close(cat("step ", step), (*schedule)(step), expected.at("values")[i]);
    if ((*again)(step) != (*schedule)(step))
      verdict.fail(cat("step ", step, ": another rate from its config()"));
  }
}

}  // namespace tutti::golden
