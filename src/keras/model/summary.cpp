// The table of summary(), as Keras prints it by `rich` into 80 columns.

#include <cstdio>
#include <iostream>

#include "keras/model/model_body.h"
#include "keras/training/training_state.h"

namespace tutti::keras {
namespace {

std::string with_commas(int64_t number) {
  std::string digits = std::to_string(number);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

std::string memory_text(int64_t bytes) {
  const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  double size = static_cast<double>(bytes);
  int unit = 0;
  for (; size >= 1024 && unit < 4; ++unit) size /= 1024;
  char text[64];
  std::snprintf(text, sizeof(text), "%.2f %s", size, units[unit]);
  return text;
}

struct Column {
  const char* title;
  std::size_t width;
  bool right = false;
};

/// A cell's line, which has no more than `width` characters (of one byte, but for the ellipsis).
std::string padded(const std::string& text, const Column& column) {
  std::size_t length = 0;
  for (char c : text) length += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  const std::string fill(column.width - std::min(column.width, length), ' ');
  return column.right ? fill + text : text + fill;
}

std::string rule(const std::vector<Column>& columns, const char* left, const char* middle,
                 const char* right, const char* dash) {
  std::string line = left;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    for (std::size_t at = 0; at < columns[i].width + 2; ++at) line += dash;
    line += i + 1 < columns.size() ? middle : right;
  }
  return line + "\n";
}

/// Cut at blanks; a word that is longer than a line ends in an ellipsis.
std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines{""};
  for (const std::string& word : split(text, ' ')) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width)
      lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  for (std::string& line : lines) {
    if (line.size() > width) line = line.substr(0, width - 1) + "…";
  }
  return lines;
}

std::string table_row(const std::vector<Column>& columns, const std::vector<std::string>& cells) {
  std::vector<std::vector<std::string>> lines;
  std::size_t height = 1;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    lines.push_back(wrapped(cells[i], columns[i].width));
    height = std::max(height, lines.back().size());
  }
  std::string text;
  for (std::size_t at = 0; at < height; ++at) {
    for (std::size_t i = 0; i < columns.size(); ++i)
      text += cat("│ ", padded(at < lines[i].size() ? lines[i][at] : "", columns[i]), " ");
    text += "│\n";
  }
  return text;
}

struct Counts {
  int64_t number = 0;
  int64_t bytes = 0;
  void add(const Variable& variable) {
    number += variable.numel();
    bytes += variable.numel() * static_cast<int64_t>(c10::elementSize(variable.dtype()));
  }
  std::string text() const { return cat(with_commas(number), " (", memory_text(bytes), ")"); }
};

std::string shapes_text(const layers::LayerImpl& layer, const std::vector<layers::Shape>& inputs) {
  if (inputs.empty()) return "?";
  std::vector<std::string> shapes;
  for (const layers::Shape& shape : layer.compute_output_shapes(inputs))
    shapes.push_back(shape_text(shape));
  return shapes.size() == 1 ? shapes[0] : cat("[", join(shapes, ", "), "]");
}

}  // namespace

std::vector<SummaryRow> Model::summary_rows() const {
  std::vector<SummaryRow> rows;
  const auto* stack = dynamic_cast<const SequentialBody*>(body_.get());
  std::vector<layers::Shape> shapes;
  if (stack != nullptr) shapes = stack->built_shapes();
  for (const layers::Layer& layer : layers()) {
    SummaryRow row{layer->name(), layer->class_name(), "?"};
    if (stack != nullptr) {
      row.output_shape = shapes_text(*layer, shapes);
      if (!shapes.empty()) shapes = layer->compute_output_shapes(shapes);
      if (row.class_name == "InputLayer") continue;
    } else {
      row.output_shape = shapes_text(*layer, layer->built_shapes());
    }
    try {
      for (const Variable& weight : layer->weights()) row.params += weight.numel();
    } catch (const FailedPrecondition&) {  // a layer that the model has not called
      row.params = -1;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void Model::summary() const { summary(std::cout); }

void Model::summary(std::ostream& out) const {
  check_built("summary");
  const std::vector<SummaryRow> rows = summary_rows();
  bool connections = false;
  for (const SummaryRow& row : rows) connections = connections || !row.connected_to.empty();
  std::vector<Column> columns{
      {"Layer (type)", 31}, {"Output Shape", 22}, {"Param #", 13, /*right=*/true}};
  if (connections)
    columns = {
        {"Layer (type)", 19}, {"Output Shape", 17}, {"Param #", 10, true}, {"Connected to", 17}};
  std::string text = cat("Model: \"", name(), "\"\n", rule(columns, "┏", "┳", "┓", "━"));
  for (const Column& column : columns) text += cat("┃ ", padded(column.title, column), " ");
  text += cat("┃\n", rule(columns, "┡", "╇", "┩", "━"));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SummaryRow& row = rows[i];
    if (i > 0) text += rule(columns, "├", "┼", "┤", "─");
    text += table_row(columns,
                      {cat(row.name, " (", row.class_name, ")"), row.output_shape,
                       row.params < 0 ? "0 (unbuilt)" : with_commas(row.params), row.connected_to});
  }
  text += rule(columns, "└", "┴", "┘", "─");
  Counts trainable, others, optimizer;
  for (const Variable& variable : trainable_variables()) trainable.add(variable);
  for (const Variable& variable : non_trainable_variables()) others.add(variable);
  if (training_->compiled && training_->optimizer.built()) {
    for (const std::string& slot : training_->optimizer.slot_names()) {
      for (const Variable& variable : training_->optimizer.slots(slot)) optimizer.add(variable);
    }
    optimizer.number += 2;  // iteration and learning rate, as Keras counts them
    optimizer.bytes += 12;
  }
  const Counts total{trainable.number + others.number + optimizer.number,
                     trainable.bytes + others.bytes + optimizer.bytes};
  text += cat(" Total params: ", total.text(), "\n Trainable params: ", trainable.text(),
              "\n Non-trainable params: ", others.text(), "\n");
  if (optimizer.number > 0) text += cat(" Optimizer params: ", optimizer.text(), "\n");
  out << text << std::flush;
}

}  // namespace tutti::keras
