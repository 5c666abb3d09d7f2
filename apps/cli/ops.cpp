#include <iomanip>
#include <iostream>
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/suggestions.h"
#include "scaffolding/core/op.h"
#include "scaffolding/core/provider.h"

namespace sf::cli {

static constexpr DeviceType kDevices[] = {DeviceType::CPU, DeviceType::CUDA};

// "conv2d_forward on cpu: onednn native-avx2 native-base", in the order in which they are asked.
static void print_providers(const OpEntry& op, const char* indent) {
  for (auto* table : op.tables)
    for (DeviceType d : kDevices) {
      if (table->count(d) == 0) continue;
      std::cout << indent << table->name() << " on " << (d == DeviceType::CPU ? "cpu" : "cuda") << ":";
      for (int i = 0; i < table->count(d); ++i) std::cout << " " << provider_label(table->entry(d, i));
      std::cout << "\n";
    }
  if (op.tables.empty()) std::cout << indent << "no kernel of its own: made of other ops\n";
}

static void print_op(const OpEntry& op) {
  std::cout << op.name << "(" << op.params << ")\n  " << op.help << "\n  like: " << op.reference
            << "\n  gradient: " << (op.differentiable ? "yes" : "no")
            << (op.has_inplace ? "; in place: " + op.name + "_" : "") << "\n  providers, first asked first:\n";
  print_providers(op, "    ");
}

static void print_all(bool where) {
  size_t width = 0;
  for (auto* op : all_ops()) width = std::max(width, op->name.size());
  for (auto* op : all_ops()) {
    std::cout << std::left << std::setw(int(width) + 2) << op->name << op->help << "\n";
    if (where) print_providers(*op, "    ");
  }
}

void add_ops(CLI::App& program) {
  auto* command = program.add_subcommand("ops", "List the ops, or describe one");
  auto name = std::make_shared<std::string>();
  auto where = std::make_shared<bool>(false);
  command->add_option("name", *name, "An op, such as add; all without it");
  command->add_flag("--where", *where, "Which providers have kernels, in the order in which they are asked");
  command->footer("Examples:\n  scaffolding ops\n  scaffolding ops softmax\n  scaffolding ops --where");
  command->callback([name, where] {
    if (name->empty()) return print_all(*where);
    const OpEntry* op = find_op(*name);
    std::vector<std::string> names;
    for (auto* known : all_ops()) names.push_back(known->name);
    SF_CHECK(op, "ops: there is no op '", *name, "'", did_you_mean(*name, names, "`scaffolding ops` lists them"));
    print_op(*op);
  });
}

}  // namespace sf::cli
