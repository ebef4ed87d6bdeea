#include <algorithm>
#include <cmath>

#include "keras/layers/encoding.h"
#include "tutti/keras/layers/preprocessing.h"

namespace tutti::keras::layers {
namespace {

/// Numbers that each stand for a weight: a sketch of the data's distribution (Keras').
struct Summary {
  std::vector<float> values;
  std::vector<float> weights;
};

/// np.interp.
double interpolate(double x, const std::vector<float>& at, const std::vector<float>& values) {
  if (x <= at.front()) return values.front();
  if (x >= at.back()) return values.back();
  const auto above =
      static_cast<std::size_t>(std::upper_bound(at.begin(), at.end(), x) - at.begin());
  const double left = at[above - 1], right = at[above];
  const double slope = (static_cast<double>(values[above]) - values[above - 1]) / (right - left);
  return slope * (x - left) + values[above - 1];
}

Summary compressed(const Summary& summary, double epsilon) {
  if (static_cast<double>(summary.values.size()) * epsilon < 1) return summary;
  std::vector<float> cumulated(summary.weights.size());
  float sum = 0;
  for (std::size_t i = 0; i < cumulated.size(); ++i) cumulated[i] = sum += summary.weights[i];
  std::vector<float> shares(cumulated.size());
  for (std::size_t i = 0; i < shares.size(); ++i) shares[i] = cumulated[i] / cumulated.back();
  Summary shorter;
  double before = 0;
  const auto steps = static_cast<int64_t>(std::ceil(1.0 / epsilon));
  for (int64_t i = 0; i < steps; ++i) {
    const double share = epsilon + static_cast<double>(i) * epsilon;
    shorter.values.push_back(static_cast<float>(interpolate(share, shares, summary.values)));
    const double weight = interpolate(share, shares, cumulated);
    shorter.weights.push_back(static_cast<float>(weight - before));
    before = weight;
  }
  return shorter;
}

Summary summarized(std::vector<float> values, double epsilon) {
  std::sort(values.begin(), values.end());
  const double step = std::max(static_cast<double>(values.size()) / (1.0 / epsilon), 1.0);
  Summary summary;
  for (auto i = static_cast<std::size_t>(step - 1); i < values.size();
       i += static_cast<std::size_t>(step)) {
    summary.values.push_back(values[i]);
    summary.weights.push_back(static_cast<float>(step));
  }
  return summary;
}

Summary merged(const Summary& a, const Summary& b, double epsilon) {
  std::vector<std::pair<float, float>> rows;
  for (std::size_t i = 0; i < a.values.size(); ++i) rows.emplace_back(a.values[i], a.weights[i]);
  for (std::size_t i = 0; i < b.values.size(); ++i) rows.emplace_back(b.values[i], b.weights[i]);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  Summary both;
  for (const auto& [value, weight] : rows) {
    both.values.push_back(value);
    both.weights.push_back(weight);
  }
  return compressed(both, epsilon);
}

class DiscretizationImpl : public LayerImpl {
 public:
  explicit DiscretizationImpl(const DiscretizationOptions& options)
      : LayerImpl("Discretization", options.name, options.input_shape),
        options_(options),
        given_(!options.num_bins) {
    check_word(*this, "output_mode", options_.output_mode,
               {"int", "one_hot", "multi_hot", "count"});
    if (given_ && options_.bin_boundaries.empty())
      throw InvalidArgument(
          cat(head(*this), "neither bin_boundaries nor num_bins, expected one of them"));
    if (!given_) check_count(*this, "num_bins", *options_.num_bins);
    if (!(options_.epsilon > 0 && options_.epsilon < 1))
      throw InvalidArgument(
          cat(head(*this), "epsilon ", options_.epsilon, ", expected between 0 and 1"));
    set_boundaries(options_.bin_boundaries);
  }
  std::string class_name() const override { return "Discretization"; }
  std::string config() const override {
    Json json = base_config(*this);
    if (!options_.bin_boundaries.empty()) json["bin_boundaries"] = options_.bin_boundaries;
    put(json, "num_bins", options_.num_bins);
    json.update({{"epsilon", options_.epsilon}, {"output_mode", options_.output_mode}});
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    return encoded_shape(input, options_.output_mode, depth());
  }
  const std::vector<double>& boundaries() const { return options_.bin_boundaries; }

  void begin() {
    check_adapts_here(*this);
    if (given_)
      throw InvalidArgument(
          cat("adapt [", name(), "]: bin_boundaries were given, expected a layer with num_bins"));
    summary_ = {};
  }
  void add(const Tensor& data) {
    const Tensor values = data.to(at::kCPU, at::kFloat).contiguous();
    const auto* first = values.const_data_ptr<float>();
    summary_ =
        merged(summarized(std::vector<float>(first, first + values.numel()), options_.epsilon),
               summary_, options_.epsilon);
  }
  void finish() {
    if (summary_.values.empty())
      throw InvalidArgument(cat("adapt [", name(), "]: no numbers, expected at least one"));
    const Summary bins = compressed(summary_, 1.0 / static_cast<double>(*options_.num_bins));
    set_boundaries(std::vector<double>(bins.values.begin(), bins.values.end() - 1));
    if (!boundaries_.defined()) boundaries_ = at::empty({0}, at::kFloat);  // one bin
    summary_ = {};
  }

 protected:
  bool autocasts() const override { return false; }
  Tensor call(const Tensor& input, bool training) override {
    if (!boundaries_.defined())
      throw FailedPrecondition(
          cat(head(*this), "no bins yet, expected bin_boundaries or a call of adapt before"));
    const Tensor bins = at::bucketize(input.to(at::kFloat), boundaries_.to(input.device()),
                                      /*out_int32=*/true, /*right=*/true);
    return options_.output_mode == "int" ? bins
                                         : encode_categories(bins, options_.output_mode, depth(),
                                                             dtype_policy().compute_dtype());
  }

 private:
  int64_t depth() const {
    return boundaries_.defined() ? boundaries_.numel() + 1 : options_.num_bins.value_or(-1);
  }
  void set_boundaries(std::vector<double> boundaries) {
    if (!std::is_sorted(boundaries.begin(), boundaries.end()))
      throw InvalidArgument(cat(head(*this), "bin_boundaries that fall, expected rising ones"));
    options_.bin_boundaries = std::move(boundaries);
    boundaries_ = Tensor();
    if (!options_.bin_boundaries.empty())
      boundaries_ = at::tensor(options_.bin_boundaries, at::kDouble).to(at::kFloat);
  }

  DiscretizationOptions options_;
  bool given_;
  Tensor boundaries_;
  Summary summary_;
};

Layer discretization_from(const Json& json, const LayerBase& base) {
  DiscretizationOptions options;
  options.bin_boundaries = flat_numbers(json, "bin_boundaries");
  options.num_bins = optional_member<int64_t>(json, "num_bins");
  options.epsilon = member<double>(json, "epsilon", 0.01);
  options.output_mode = member<std::string>(json, "output_mode", "int");
  options.name = base.name;
  options.input_shape = base.input_shape;
  return Discretization(options);
}

DiscretizationImpl& discretization(const Layer& layer) {
  return impl_of<DiscretizationImpl>(layer, "Discretization");
}

constexpr LayerEntry kDiscretization[] = {{"Discretization", discretization_from}};

}  // namespace

Discretization::Discretization(const DiscretizationOptions& options)
    : Layer(std::make_shared<DiscretizationImpl>(options)) {}
Discretization::Discretization(const Layer& layer) : Layer(layer) { discretization(layer); }
void Discretization::adapt(const Tensor& data) const { adapt_to(discretization(*this), data); }
void Discretization::adapt(const data::Dataset<Nest>& data, std::optional<int64_t> steps) const {
  adapt_to(discretization(*this), data, steps);
}
std::vector<double> Discretization::bin_boundaries() const {
  return discretization(*this).boundaries();
}

LayerFamily discretization_layers() { return kDiscretization; }

}  // namespace tutti::keras::layers
