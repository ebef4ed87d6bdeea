// What predict gives: the replicas' outputs of all steps, and of all workers, in the order of the
// rows.

#include "distribute/worker_group.h"
#include "keras/training/train_loop.h"

namespace tutti::keras {

void JoinedOutputs::add(const std::vector<Nest>& parts) {
  for (const Nest& part : parts) {
    if (pieces_.empty()) {
      structure_ = part;
      pieces_.resize(flatten(part).size());
    }
    const std::vector<Tensor> leaves = flatten(part);
    if (leaves.size() != pieces_.size())
      throw InvalidArgument(cat("predict: outputs of the structure ", part.structure(),
                                " after others of ", structure_.structure(),
                                ", expected one structure"));
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i].defined() && leaves[i].dim() > 0 && leaves[i].size(0) > 0)
        pieces_[i].push_back(leaves[i].cpu());
    }
  }
}

Nest JoinedOutputs::joined(const Model& model) {
  std::vector<Tensor> whole;
  for (std::vector<Tensor>& pieces : pieces_) {
    if (pieces.empty()) break;
    whole.push_back(at::cat(pieces));
  }
  if (whole.empty() || whole.size() != pieces_.size())
    throw InvalidArgument(cat("predict [", model.name(), "]: no rows, expected at least one"));
  return structure_.is_leaf() ? Nest(whole[0]) : pack_as(structure_, std::move(whole));
}

std::vector<Nest> joined_over(distribute::WorkerGroup& workers, const std::vector<Nest>& parts,
                              bool in_turn) {
  std::vector<std::vector<Tensor>> leaves;  // [part][leaf]
  for (const Nest& part : parts) leaves.push_back(flatten(part));
  std::vector<Tensor> whole;
  for (std::size_t leaf = 0; leaf < leaves[0].size(); ++leaf) {
    std::vector<int64_t> rows;
    std::vector<Tensor> mine;
    for (const std::vector<Tensor>& part : leaves) {
      if (!part[leaf].defined() || part[leaf].dim() == 0)
        throw InvalidArgument(
            "predict: an output without a batch axis with several workers, expected rows");
      rows.push_back(part[leaf].size(0));
      mine.push_back(part[leaf].detach().cpu());
    }
    const auto all_rows = workers.exchange(rows);
    const Tensor all = workers.all_gather(at::cat(mine), workers.options());
    std::vector<std::vector<Tensor>> pieces;  // [worker][part]
    int64_t at = 0;
    for (const std::vector<int64_t>& worker : all_rows) {
      pieces.emplace_back();
      for (const int64_t count : worker) {
        pieces.back().push_back(all.narrow(0, at, count));
        at += count;
      }
    }
    std::vector<Tensor> ordered;
    const std::size_t outer = in_turn ? leaves.size() : pieces.size();
    const std::size_t inner = in_turn ? pieces.size() : leaves.size();
    for (std::size_t i = 0; i < outer; ++i) {
      for (std::size_t j = 0; j < inner; ++j)
        ordered.push_back(in_turn ? pieces[j][i] : pieces[i][j]);
    }
    whole.push_back(at::cat(ordered));
  }
  const Nest& structure = parts[0];
  return {structure.is_leaf() ? Nest(whole[0]) : pack_as(structure, std::move(whole))};
}

}  // namespace tutti::keras
