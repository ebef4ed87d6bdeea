// Losses by name.

#include <algorithm>

#include "keras/losses/families.h"

namespace tutti::keras::losses {
namespace {

/// "MeanSquaredError" and "mean_squared_error" are one name.
std::string plain(const std::string& name) {
  std::string letters = to_lower(name);
  letters.erase(std::remove(letters.begin(), letters.end(), '_'), letters.end());
  return letters;
}

bool goes_by(const LossEntry& entry, const std::string& wanted) {
  return plain(entry.function_name) == wanted || plain(entry.class_name) == wanted ||
         std::any_of(entry.aliases.begin(), entry.aliases.end(),
                     [&](const char* alias) { return plain(alias) == wanted; });
}

}  // namespace

Loss Loss::from_config(const std::string& class_name, const std::string& config) {
  const Json json = parse_object(cat("loss ", class_name), config);
  const LossBase base{
      reduction_from_name(member<std::string>(json, "reduction", "sum_over_batch_size")),
      member<std::string>(json, "name", "")};
  if (class_name == "LossFunctionWrapper") {
    throw InvalidArgument(
        cat("loss [", base.name,
            "]: a function of a user's own cannot be made from a file, expected one of Tutti's "
            "losses; compile anew"));
  }
  const std::string wanted = plain(class_name);
  std::vector<std::string> names;
  for (const LossFamily family :
       {regression_losses(), crossentropy_losses(), structured_losses()}) {
    for (const LossEntry& entry : family) {
      if (goes_by(entry, wanted)) return entry.make(json, base);
      names.push_back(entry.aliases.empty()
                          ? std::string(entry.function_name)
                          : cat(entry.function_name, " (", entry.aliases[0], ")"));
    }
  }
  throw InvalidArgument(cat("loss: \"", class_name, "\", expected one of ", join(names, ", ")));
}

Loss::Loss(const std::string& name) : Loss(from_config(name, "{}")) {}

}  // namespace tutti::keras::losses
